package cage

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the list into the document instead of comparing")

// verdict is what becomes of a call, in words.
func verdict(v Verdict) string {
	switch v {
	case Allow:
		return ""
	case Kill:
		return "the process is killed"
	}
	return unix.ErrnoName(unix.Errno(v &^ unix.SECCOMP_RET_ERRNO))
}

// document is the part of the page that the lists make.
func document() string {
	calls := GuestCalls()
	slices.SortFunc(calls, func(a, b Call) int { return cmp.Compare(a.Name, b.Name) })
	sealed := map[string]bool{}
	for _, c := range SealCalls() {
		sealed[c.Name] = true
	}
	var b strings.Builder
	var never []string
	b.WriteString("\n| call | what for | else |\n| --- | --- | --- |\n")
	for _, c := range calls {
		if c.Why == whyNever {
			never = append(never, "`"+c.Name+"`")
			continue
		}
		other := verdict(c.Otherwise)
		if len(c.When) == 0 {
			other = verdict(c.Then) // for any arguments
		}
		if sealed[c.Name] {
			other = "once the module is loaded, the process is killed for new machine code"
			if c.Nr == unix.SYS_SECCOMP {
				other = "once the module is loaded, the process is killed"
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, c.Why, other)
	}
	fmt.Fprintf(&b, "\nThe process is killed for %s: %s.\n", strings.Join(never, ", "), whyNever)
	return b.String()
}

// TestDocument keeps docs/cage.md true.
func TestDocument(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the document is about amd64")
	}
	const file, end = "../../../docs/cage.md", " -update -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), end)
	if !found {
		t.Fatalf("%s has no place for the list", file)
	}
	want := document()
	if *update {
		if err := os.WriteFile(file, []byte(before+end+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if after != want {
		t.Errorf("%s is not what the lists are: go test -run TestDocument -update, and look at what changed", file)
	}
	for _, line := range strings.Split(before, "\n") {
		for part := range strings.SplitSeq(line, "`") {
			if name, isTest := strings.CutPrefix(part, "Test"); isTest && name != "" && !testExists(t, part) {
				t.Errorf("%s names %s, which there is not", file, part)
			}
		}
	}
}

// testExists looks for a test where those of the cage are.
func testExists(t *testing.T, name string) bool {
	t.Helper()
	for _, dir := range []string{"../engine", "../wasi", "../wasip1", "../wasmedge", "../compile", "../../stdio", "../../../tests/scenario"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			text, err := os.ReadFile(dir + "/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "func "+name+"(") {
				return true
			}
		}
	}
	return false
}
