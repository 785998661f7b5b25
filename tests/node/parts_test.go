package node

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// partVariable is set in the processes that TestParts starts.
const partVariable = "SUNABA_TEST_PART"

// TestPart does in such a process what the name of the process's folder says.
func TestPart(t *testing.T) {
	folder := os.Getenv(partVariable)
	if folder == "" {
		return // the others call it
	}
	if err := Loopback(); err != nil {
		t.Error(err)
	}
	t.Logf("part %s", filepath.Base(folder))
	if data, err := os.ReadFile(filepath.Join(folder, "bin", "fails")); err != nil || string(data) == filepath.Base(folder) {
		t.Errorf("it is told to fail: %q, %v", data, err)
	}
}

// TestParts has several processes do their parts, one of which may fail.
func TestParts(t *testing.T) {
	part := []string{"-test.run=^TestPart$", "-test.v"}
	for fails, want := range map[string]int{"0": 0, "1": 1, "3": 1} {
		folder := t.TempDir()
		if err := os.MkdirAll(filepath.Join(folder, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "bin", "fails"), []byte(fails), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code, err := runParts(folder, partVariable, [][]string{part, part, part}, &out)
		if err != nil || code != want {
			t.Errorf("part %s fails: exit code %d, %v; want %d", fails, code, err, want)
		}
		if got := regexp.MustCompile(`part \d`).FindAllString(out.String(), -1); strings.Join(got, ",") != "part 1,part 2,part 3" {
			t.Errorf("part %s fails: the output is\n%s", fails, &out)
		}
	}
}

// TestDivide gives every test to one process.
func TestDivide(t *testing.T) {
	names := []string{"TestA", "TestAB", "TestB", "TestC"}
	for n := 1; n <= 5; n++ {
		count := map[string]int{}
		for _, args := range divide(names, n, []string{"-test.v"}) {
			pattern, found := strings.CutPrefix(args[0], "-test.run=")
			if !found || len(args) != 2 || args[1] != "-test.v" {
				t.Fatalf("%q", args)
			}
			for _, name := range names {
				if regexp.MustCompile(pattern).MatchString(name) {
					count[name]++
				}
			}
		}
		for _, name := range names {
			if count[name] != 1 {
				t.Errorf("in %d processes %s runs %d times", n, name, count[name])
			}
		}
	}
}
