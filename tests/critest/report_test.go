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
{"LeafNodeType":"It","LeafNodeText":"f","State":"passed","NumAttempts":2,
 "AdditionalFailures":[{"State":"failed","Failure":{"Message":"Failure recorded during attempt 1:\ntoo late"}}]},
{"LeafNodeType":"It","LeafNodeText":"c","State":"skipped","Failure":{"Message":"AppArmor is disabled on this host"}},
{"LeafNodeType":"It","LeafNodeText":"d","State":"skipped","Failure":{"Message":""}},
{"LeafNodeType":"It","LeafNodeText":"e","State":"skipped","Failure":{"Message":"the runtime lacks it"}}]}]`

// A failure and a skip that the runtime is to blame for fail the run; the table has every spec with
// its reason.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, reportFile), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	s := settings{stdout: &said}
	specs, err := readReport(filepath.Join(dir, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	ours := result{server: sunabaName, variant: "v", specs: specs}
	if err := s.report(ours, dir); err == nil || !strings.HasPrefix(err.Error(), "2 of 6 specs") {
		t.Errorf("%v", err)
	}
	summarize(&said, []result{ours})
	for _, want := range []string{"v: 2 passed (1 at the second attempt), 1 failed, 3 skipped of 6 specs", "again    f\n", "too late\n", "rpc error: code = Internal\n", "skipped  e\n", "1  not selected\n", "2        1        3\n"} {
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

// Two servers are compared spec by spec; what went alike is not named.
func TestCompare(t *testing.T) {
	ours := result{server: sunabaName, variant: "v", specs: []spec{
		{name: "a", state: "passed"}, {name: "b", state: "passed"}, {name: "c", state: "skipped", why: "x"}, {name: "d", state: "passed"},
	}}
	theirs := result{server: "other", variant: "v", specs: []spec{
		{name: "a", state: "passed"}, {name: "b", state: "failed", why: "no\nway"}, {name: "c", state: "skipped", why: "y"},
	}}
	var said strings.Builder
	compare(&said, []result{ours, theirs, {server: sunabaName, variant: "alone"}})
	want := "\nvariant v: 2 specs differ\n  sunaba   other     \n  passed   failed     b  [no way]\n  passed   absent     d\n"
	if said.String() != want {
		t.Errorf("%q, want %q", said.String(), want)
	}
}

func TestLost(t *testing.T) {
	own := result{server: containerdName, variant: "v", specs: []spec{{name: "a", state: "passed"}, {name: "b", state: "failed"}, {name: "c", state: "passed"}}}
	for _, c := range []struct {
		what string
		ours []spec
		want []string
	}{
		{"all passed", []spec{{name: "a", state: "passed"}, {name: "b", state: "passed"}, {name: "c", state: "passed"}}, nil},
		{"as much as its own", []spec{{name: "a", state: "passed"}, {name: "b", state: "failed"}, {name: "c", state: "passed"}}, nil},
		{"less", []spec{{name: "a", state: "skipped"}, {name: "b", state: "passed"}}, []string{"alone: a", "alone: c"}},
	} {
		err := lost([]result{{server: pluginName, variant: "v", specs: c.ours}, own})
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", c.what, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", c.what, err, want)
			}
		}
	}
	if lost([]result{own}) == nil {
		t.Error("nothing compared is no error")
	}
}
