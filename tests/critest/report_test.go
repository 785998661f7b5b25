package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `[{"SpecReports":[
{"LeafNodeType":"BeforeSuite","State":"passed"},
{"LeafNodeType":"It","LeafNodeText":"b","ContainerHierarchyTexts":["[k8s.io] X","y"],"State":"failed","RunTime":1500000000,
 "Failure":{"Message":"no such thing\nUnexpected error:\n    <*status.Error | 0x1>: \n    rpc error: code = Internal\n    {\n        s: {"}},
{"LeafNodeType":"It","LeafNodeText":"a","ContainerHierarchyTexts":["[k8s.io] X"],"State":"passed"},
{"LeafNodeType":"It","LeafNodeText":"c","State":"skipped","Failure":{"Message":"AppArmor is disabled on this host"}},
{"LeafNodeType":"It","LeafNodeText":"d","State":"skipped","Failure":{"Message":""}},
{"LeafNodeType":"It","LeafNodeText":"e","State":"skipped","Failure":{"Message":"the runtime lacks it"}}]}]`

// A failure and a skip that the runtime is to blame for fail the run; the table has every spec with its reason.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, reportFile), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	s := settings{stdout: &said}
	if err := s.report(variant{name: "v"}, dir, 0); err == nil || !strings.HasPrefix(err.Error(), "2 of 5 specs") {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"v: 1 passed, 1 failed, 3 skipped of 5 specs", "rpc error: code = Internal\n", "skipped  e\n", "1 skipped: not selected"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not in\n%s", want, said.String())
		}
	}
	table, err := os.ReadFile(filepath.Join(dir, tableFile))
	if err != nil {
		t.Fatal(err)
	}
	if want := "failed     1.50  [k8s.io] X / y / b  [no such thing Unexpected error: <*status.Error | 0x1>: rpc error: code = Internal]\n"; !strings.Contains(string(table), want) {
		t.Errorf("%q is not in\n%s", want, table)
	}
}
