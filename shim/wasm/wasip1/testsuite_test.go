package wasip1

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSuite runs the programs of github.com/WebAssembly/wasi-testsuite, which is not part of this
// repository: set WASI_TESTSUITE to the tests folder of a checkout of its branch prod/testsuite-base.
func TestSuite(t *testing.T) {
	folder := os.Getenv("WASI_TESTSUITE")
	if folder == "" {
		t.Skip("WASI_TESTSUITE is not set")
	}
	programs, err := filepath.Glob(filepath.Join(folder, "*", "testsuite", "wasm32-wasip1", "*.wasm"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("no programs below %s: %v", folder, err)
	}
	for _, walks := range []bool{false, true} {
		for _, program := range programs {
			name := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(program)))) + "/" + filepath.Base(program)
			if walks {
				name = "walk/" + name
			}
			t.Run(name, func(t *testing.T) { runProgram(t, program, walks) })
		}
	}
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
