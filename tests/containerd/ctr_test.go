package containerd

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// TestRunByCtr runs images of every kind that containerd can unpack, by its own client.
func TestRunByCtr(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		for i, c := range []struct {
			what, ref, platform string
			args                []string
			code                int
			output              string
		}{
			{"Linux", world.busybox, "", []string{"/bin/sh", "-c", "echo hello; exit 3"}, 3, "hello\n"},
			{"Linux variant of an index", world.index, "", []string{"/batch", "-exit", "7"}, 7, "batch: done\n"},
			{"wasm variant of an index", world.index, "wasip1/wasm", []string{"/batch.wasm", "-exit", "7"}, 7, "batch: done\n"},
			{"platform wasip1/wasm", world.wasip1, "wasip1/wasm", []string{"/guest.wasm", "exit", "5"}, 5, ""},
			{"platform wasi/wasm", world.wasi, "wasi/wasm", []string{"/guest.wasm", "env", "PATH"}, 0, "/bin\n"},
			{"a component", world.wasip2, "wasip2/wasm", []string{"/app.wasm", "say", "a component"}, 0, "a component\n"},
			{"a component that traps", world.wasip2, "wasip2/wasm", []string{"/app.wasm", "trap"}, 134, ""},
			{"a component that exits", world.wasip2, "wasip2/wasm", []string{"/app.wasm", "exit", "42"}, 42, ""},
			{"a module that says linux", world.asLinux, "", []string{"/guest.wasm", "trap"}, 134, ""},
		} {
			b.pull(c.ref, c.platform)
			args := []string{"run", "--rm", "--runtime", ours}
			if c.platform != "" {
				args = append(args, "--platform", c.platform)
			}
			out, err := b.Ctr(b.ctx(), b.namespace, append(append(args, c.ref, name("c", i)), c.args...)...)
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			if code != c.code || !strings.HasSuffix(out, c.output) {
				t.Errorf("%s: code %d, want %d; output %q, want %q at its end; %v", c.what, code, c.code, out, c.output, err)
			}
		}
	})
}
