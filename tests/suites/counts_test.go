package suites

import (
	"slices"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name, says      string
		passed, skipped int
		failed          []string
	}{
		{"a Go package", `=== RUN   TestA
--- PASS: TestA (0.00s)
=== RUN   TestB
    b_test.go:12: --- FAIL: is only said
--- FAIL: TestB (1.20s)
    --- PASS: TestB/one (0.10s)
    --- FAIL: TestB/two (0.10s)
        --- FAIL: TestB/two/deep (0.10s)
--- SKIP: TestC (0.00s)
FAIL
`, 2, 1, []string{"TestB/two/deep"}},
		{"a test that fails beside its subtests", "--- FAIL: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n", 1, 0, []string{"TestA"}},
		{"one name that begins like another", "--- PASS: TestA (0.00s)\n--- PASS: TestAB (0.00s)\n", 2, 0, nil},
		{"a test that is cut off in the form for test2json", "\x16=== RUN   TestA\n\x16=== RUN   TestA/x\nunfinished\x16--- PASS: TestA/x (0.00s)\n\x16=== RUN   TestA/y\n", 1, 0, nil},
		{"critest", `== critest runc
failed   [k8s.io] Security Context / bucket / does it
         Expected nothing
runc: 98 passed (1 at the second attempt), 1 failed, 9 skipped of 108 specs in 300 s; report/runc/table.txt
  9 skipped: AppArmor is disabled
critest: variant runc: 1 of 108 specs failed or were skipped without need
`, 98, 9, []string{"[k8s.io] Security Context / bucket / does it"}},
	} {
		var got counts
		for text := range strings.Lines(c.says) {
			got.line(strings.TrimSuffix(text, "\n"))
		}
		if got.passed() != c.passed || got.skipped() != c.skipped || !slices.Equal(got.failed(), c.failed) {
			t.Errorf("%s: %d passed, %d skipped, failed %q; want %d, %d, %q", c.name, got.passed(), got.skipped(), got.failed(), c.passed, c.skipped, c.failed)
		}
	}
}
