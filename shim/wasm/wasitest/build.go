package wasitest

import (
	"os"
	"os/exec"
	"testing"
)

// Build runs a command that compiles a guest to the file out, and returns the module.
func Build(t testing.TB, cmd *exec.Cmd, out string) []byte {
	t.Helper()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build guest: %v\n%s", err, text)
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return module
}
