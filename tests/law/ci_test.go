package law

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What continuous integration runs fails if any of its commands does, also one that runs beside
// others. What they said is shown, and what runs beside a command that fails is ended.
func TestContinuousIntegrationFailsWithEachCommand(t *testing.T) {
	said, asked, code := integrate(t, "", "")
	if code != 0 || len(asked) < 9 {
		t.Fatalf("exit code %d after %q:\n%s", code, asked, said)
	}
	for _, command := range asked {
		if !strings.Contains(said, "this is "+command+"\n") {
			t.Errorf("nothing is shown of %q", command)
		}
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			said, _, code := integrate(t, command, "")
			if code != 3 || !strings.Contains(said, "this is "+command+"\n") {
				t.Errorf("exit code %d:\n%s", code, said)
			}
		})
	}
	t.Run("beside", func(t *testing.T) {
		t.Parallel()
		const slow = "make v2-machines"
		_, asked, code := integrate(t, "make check test", slow)
		if all := strings.Join(asked, "\n"); code != 3 || !strings.Contains(all, slow) || strings.Contains(all, "over") {
			t.Errorf("exit code %d after\n%s", code, all)
		}
	})
}

// integrate runs .ci/run with stand-ins for make and the scripts, of which one fails and one takes
// long. It returns what it said, and the commands that it ran.
func integrate(t *testing.T, failing, slow string) (said string, asked []string, code int) {
	t.Helper()
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join(root(t), ".ci/run"))
	if err != nil {
		t.Fatal(err)
	}
	const stand = `#!/bin/sh
me="${0##*/} $*"
echo "$me" >>"$DIR/asked"
echo "this is $me"
[ "$me" != "$SLOW" ] || { sleep 60; echo over >>"$DIR/asked"; }
[ "$me" = "$FAILING" ] || exit 0
until [ -z "$SLOW" ] || grep -qxF "$SLOW" "$DIR/asked"; do sleep 0.01; done
exit 3
`
	// A process that another test starts meanwhile would have one of them open for writing: such a
	// file cannot be run.
	syscall.ForkLock.RLock()
	for name, text := range map[string]string{
		".ci/run": string(script), "bin/go": "#!/bin/sh\n", "bin/make": stand, "tests/critest/fetch.sh": stand, "tests/runtimes.sh": stand,
	} {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755))
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, ".ci/run"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "DIR="+dir, "FAILING="+failing, "SLOW="+slow)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	all, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	return string(out), strings.Split(strings.TrimSpace(string(all)), "\n"), cmd.ProcessState.ExitCode()
}
