package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		code, err := runParts(folder, partVariable, [][]string{part, part, part}, nil, &out)
		if err != nil || code != want {
			t.Errorf("part %s fails: exit code %d, %v; want %d", fails, code, err, want)
		}
		if got := regexp.MustCompile(`part \d`).FindAllString(out.String(), -1); strings.Join(got, ",") != "part 1,part 2,part 3" {
			t.Errorf("part %s fails: the output is\n%s", fails, &out)
		}
	}
}

// TestDivide has a pattern for each test and each subtest of one, which chooses no other.
func TestDivide(t *testing.T) {
	got := divide([]string{"TestA", "TestAB", "TestB", "TestC"}, map[string][]string{"TestB": {"x", "y+z"}})
	want := []string{"^TestB$/^x$", `^TestB$/^y\+z$`, "^TestA$", "^TestAB$", "^TestC$"}
	if !slices.Equal(got, want) {
		t.Errorf("patterns %q, want %q", got, want)
	}
}

// sharedTests are the tests that TestInTurns shares out.
const sharedTests = 40

// TestTurn does by turns what the patterns say.
func TestTurn(t *testing.T) {
	folder := os.Getenv(sharedVariable)
	if folder == "" {
		return // TestInTurns calls it
	}
	for i := range sharedTests {
		t.Run(fmt.Sprint("n", i), func(t *testing.T) {
			t.Logf("ran %d", i)
			if data, err := os.ReadFile(filepath.Join(folder, "bin", "fails")); err != nil || string(data) == fmt.Sprint(i) {
				t.Errorf("it is told to fail: %q, %v", data, err)
			}
		})
	}
}

// TestInTurns has several processes share out tests: each is run once, and one that fails is told.
func TestInTurns(t *testing.T) {
	var names []string
	for i := range sharedTests {
		names = append(names, fmt.Sprint("n", i))
	}
	patterns := divide([]string{"TestTurn"}, map[string][]string{"TestTurn": names})
	for fails, want := range map[string]int{"none": 0, "17": 1} {
		folder := t.TempDir()
		if err := os.MkdirAll(filepath.Join(folder, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "bin", "fails"), []byte(fails), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code, err := runParts(folder, partVariable, slices.Repeat([][]string{{"-test.v"}}, 3), patterns, &out)
		if err != nil || code != want {
			t.Errorf("test %s fails: exit code %d, %v; want %d", fails, code, err, want)
		}
		ran := map[string]int{}
		for _, line := range regexp.MustCompile(`ran \d+`).FindAllString(out.String(), -1) {
			ran[line]++
		}
		for i := range sharedTests {
			if n := ran[fmt.Sprint("ran ", i)]; n != 1 {
				t.Errorf("test %d ran %d times:\n%s", i, n, &out)
			}
		}
	}
}

func TestMain(m *testing.M) { os.Exit(InTurns(m.Run)()) }
