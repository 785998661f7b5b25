package suites

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSecondAttempt has one suite that passes, one that passes at the second attempt and one that
// fails twice.
func TestSecondAttempt(t *testing.T) {
	var said bytes.Buffer
	dir := filepath.Join(t.TempDir(), "report")
	r, err := NewReport(dir, []Suite{{Name: "sound"}, {Name: "late"}, {Name: "broken"}}, &said, false)
	if err != nil {
		t.Fatal(err)
	}
	attempt := func(name, line string, code int) {
		t.Helper()
		if err := r.Open(name); err != nil {
			t.Fatal(err)
		}
		if err := r.Line(name, line); err != nil {
			t.Fatal(err)
		}
		if err := r.Ended(&End{Suite: name, Code: code, Took: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	again := func(name string, want bool) {
		t.Helper()
		if got, err := r.Again(name); err != nil || got != want {
			t.Errorf("a second attempt of %s: %v, %v; want %v", name, got, err, want)
		}
	}
	attempt("sound", "--- PASS: TestA (0.00s)", 0)
	again("sound", false)
	attempt("late", "--- FAIL: TestB (0.00s)", 1)
	again("late", true)
	attempt("late", "--- PASS: TestB (0.00s)", 0)
	again("late", false)
	attempt("broken", "--- FAIL: TestC (0.00s)", 1)
	again("broken", true)
	attempt("broken", "--- FAIL: TestC (0.00s)", 1)
	if _, err := r.Again("unknown"); err == nil {
		t.Error("a suite that is not in the plan has a second attempt")
	}
	if err := r.Finish(); err == nil || !strings.Contains(err.Error(), "1 of 3 suites") {
		t.Errorf("the report ends with %v; want one bad suite", err)
	}
	for _, want := range []string{"late    1       0       0        1        ok at the second attempt\n", "late, first attempt: TestB\n", "broken: TestC\n"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &said)
		}
	}
	first, err := os.ReadFile(filepath.Join(dir, "late-first.log"))
	if err != nil || !strings.Contains(string(first), "FAIL: TestB") {
		t.Errorf("the log of the first attempt: %q, %v", first, err)
	}
}
