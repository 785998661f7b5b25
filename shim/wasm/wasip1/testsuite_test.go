package wasip1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSuite runs a folder of programs in wasi-testsuite's form: NAME.wasm, and beside it NAME.json
// with arguments, environment, root and what is expected. github.com/WebAssembly/wasi-testsuite is
// not part of this repository: set WASI_TESTSUITE to the tests folder of a checkout of its branch
// prod/testsuite-base (`make wasi-suite DIR=...`). Each program runs twice, with openat2 and with
// the walk that stands in for it on older kernels.
func TestSuite(t *testing.T) {
	folder := os.Getenv("WASI_TESTSUITE")
	if folder == "" {
		t.Skip("WASI_TESTSUITE is not set")
	}
	programs := findPrograms(t, folder)
	if len(programs) == 0 {
		t.Skipf("no programs of preview 1 below %s", folder)
	}
	var table strings.Builder
	passed := map[bool]int{}
	for _, program := range programs {
		name, err := filepath.Rel(folder, program)
		if err != nil {
			t.Fatal(err)
		}
		verdicts := map[bool]string{}
		for _, walks := range []bool{false, true} {
			verdicts[walks] = "FAIL"
			if t.Run(fmt.Sprintf("%s,walk=%t", name, walks), func(t *testing.T) { runProgram(t, program, walks) }) {
				verdicts[walks] = "pass"
				passed[walks]++
			}
		}
		fmt.Fprintf(&table, "%-4s  %-4s  %s\n", verdicts[false], verdicts[true], name)
	}
	t.Logf("openat2, walk:\n%s%d of %d with openat2, %d of %d with the walk", table.String(), passed[false], len(programs), passed[true], len(programs))
}

// findPrograms are all programs below a folder but those for later versions of WASI.
func findPrograms(t *testing.T, folder string) []string {
	t.Helper()
	var programs []string
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		later := e != nil && e.IsDir() && strings.HasPrefix(e.Name(), "wasm32-wasip") && e.Name() != "wasm32-wasip1"
		if later {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".wasm" {
			programs = append(programs, path)
		}
		return err
	})
	if err != nil {
		t.Fatalf("find programs below %s: %v", folder, err)
	}
	return programs
}

func runProgram(t *testing.T, program string, walks bool) {
	var want struct {
		Args     []string          `json:"args"`
		Env      map[string]string `json:"env"`
		Root     string            `json:"root"`
		ExitCode uint32            `json:"exit_code"`
		Stdout   string            `json:"stdout"`
	}
	if data, err := os.ReadFile(strings.TrimSuffix(program, ".wasm") + ".json"); err == nil {
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
	}
	module, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	g := guest{module: module, args: append([]string{filepath.Base(program)}, want.Args...), walks: walks}
	for name, value := range want.Env {
		g.env = append(g.env, name+"="+value)
	}
	slices.Sort(g.env)
	if want.Root != "" {
		root := t.TempDir()
		if err := os.CopyFS(root, os.DirFS(filepath.Join(filepath.Dir(program), want.Root))); err != nil {
			t.Fatal(err)
		}
		g.root = root
	}
	code, stdout, stderr := g.run(t)
	if code != want.ExitCode {
		t.Errorf("exit code %d, want %d; stderr:\n%s", code, want.ExitCode, stderr)
	}
	if want.Stdout != "" && !bytes.Equal(stdout, []byte(want.Stdout)) {
		t.Errorf("stdout %q, want %q", stdout, want.Stdout)
	}
}
