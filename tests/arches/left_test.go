package main

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What is left out is there, has a reason, and is left out.
func TestLeft(t *testing.T) {
	for _, l := range left {
		if l.reason == "" {
			t.Errorf("%s %s is left out without a reason", l.pkg, l.test)
		}
		files, err := filepath.Glob(filepath.Join("../..", l.pkg, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no tests: %v", l.pkg, err)
		}
		if l.test == "" {
			if !leftOut(cmp.Or(l.arch, "arm"), l.pkg, l.short) {
				t.Errorf("%s is not left out", l.pkg)
			}
			continue
		}
		name, _, _ := strings.Cut(l.test, "/")
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {\n")
		}
		if !found {
			t.Errorf("%s has no %s any more: take it out of the table", l.pkg, name)
		}
	}
}

// A name that starts with that of a test that is left out is another test's.
func TestSkipped(t *testing.T) {
	if got := skipped("arm", "runtimeclass", true); got != "" {
		t.Errorf("of runtimeclass, %q is left out", got)
	}
	for _, short := range []bool{false, true} {
		expression := regexp.MustCompile(skipped("arm", "images", short))
		for name, want := range map[string]bool{
			"TestPowerLoss": true, "TestPowerLossOfAnother": false, "ATestPowerLoss": false, "TestFullDisk": false, "TestIndexesAreBounded": short,
		} {
			if got := expression.MatchString(name); got != want {
				t.Errorf("%s is left out, short %v: %v, want %v", name, short, got, want)
			}
		}
	}
}
