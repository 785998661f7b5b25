package components_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/guest"
	"github.com/sunaba-project/sunaba/tests/components"
)

// TestMain makes the test binary have the shim's faces, and one that runs a component.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guest":
			os.Exit(guest.Main(os.Args[2:]))
		case "compile":
			os.Exit(compile.Main(os.Args[2:]))
		case inPodFace:
			os.Exit(runInPod(os.Args[2:]))
		}
	}
	if os.Getuid() != 0 {
		panic("these tests need root")
	}
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(serveLowered(os.Args[2]))
	}
	os.Exit(m.Run())
}

// inPodFace is the face that runs a component as a pod does.
const inPodFace = "in-pod"

// tools finds the tools, without which nothing is compared.
func tools(t testing.TB) components.Tools {
	t.Helper()
	all, err := components.Find("../..")
	need(t, err)
	return all
}

// need skips a test without a tool.
func need(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, components.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// guests are the components that are compared.
var guests = map[string]struct {
	make func(components.Tools, context.Context, string, string) error
	file string
}{
	"c":          {components.Tools.FromC, "testdata/guest.c"},
	"go":         {components.Tools.FromGo, "testdata/guest.go"},
	"javascript": {components.Tools.FromJavaScript, "testdata/guest.js"},
	"python":     {of(components.Tools.FromPython, components.Command), "testdata/guest.py"},
	"async":      {components.Tools.FromText, "../../shim/wasm/wasip3/testdata/async.wat"},
	"tour":       {of(components.Tools.FromPlainC, components.Command), "../../shim/wasm/wasip2/testdata/tour.c"},
}

// of binds a way to make components to a world.
func of(make func(components.Tools, context.Context, string, string, string) error, world string) func(components.Tools, context.Context, string, string) error {
	return func(t components.Tools, ctx context.Context, file, component string) error {
		return make(t, ctx, world, file, component)
	}
}

// row is one run of a guest.
type row struct {
	guest, name string
	args        string
	env         []string
	stdin       string
	flags       []string // of wasmtime
	trap        bool     // standard error is the runtime's own, and not compared
}

var rows = []row{
	{guest: "c", name: "arguments", args: "args one ü -x --"},
	{guest: "c", name: "environment", args: "env", env: []string{"A=1", "B=two words", "EMPTY=", "C=a=b"}},
	{guest: "c", name: "no environment", args: "env"},
	{guest: "c", name: "exit 0", args: "exit 0"},
	{guest: "c", name: "exit 3", args: "exit 3"},
	{guest: "c", name: "return 3", args: "return 3"},
	{guest: "c", name: "no input", args: "streams"},
	{guest: "c", name: "streams", args: "streams", stdin: strings.Repeat("some input\n", 30000)},
	{guest: "c", name: "clocks", args: "clocks"},
	{guest: "c", name: "random", args: "random"},
	{guest: "c", name: "poll", args: "poll", stdin: "x"},
	{guest: "c", name: "contents of files", args: "contents"},
	{guest: "c", name: "paths", args: "paths"},
	{guest: "c", name: "big output", args: "big"},
	{guest: "c", name: "deep recursion", args: "deep"},
	{guest: "c", name: "memory growth", args: "grow"},
	{guest: "c", name: "unreachable", args: "trap", trap: true},
	{guest: "c", name: "endless recursion", args: "endless", trap: true},
	{guest: "c", name: "division by zero", args: "divide", trap: true},
	{guest: "c", name: "out of bounds", args: "outside", trap: true},
	{guest: "c", name: "abort", args: "abort", trap: true},
	{guest: "c", name: "unknown command", args: "nothing"},
	{guest: "go", name: "go", args: "a b", env: []string{"A=1"}, stdin: "one\ntwo\nthree"},
	{guest: "javascript", name: "javascript", args: "a b", env: []string{"A=1"}, stdin: "one\ntwo three\n"},
	{guest: "python", name: "python", args: "a b", env: []string{"A=1"}, stdin: "one\ntwo three\n"},
	{guest: "async", name: "WASI 0.3", flags: []string{"-W", "component-model-async", "-S", "p3"}},
	{guest: "tour", name: "tour", env: []string{"A=1"}, stdin: "input"},
	{guest: "tour", name: "tour: error", args: "error"},
	{guest: "tour", name: "tour: child of a dropped stream", args: "children", trap: true},
	{guest: "tour", name: "tour: unknown handle", args: "unknown", trap: true},
	{guest: "tour", name: "tour: handle of another type", args: "type", trap: true},
	{guest: "tour", name: "tour: dropped twice", args: "twice", trap: true},
	{guest: "tour", name: "tour: empty poll", args: "empty", trap: true},
	{guest: "tour", name: "tour: too long a write", args: "long", trap: true},
	{guest: "tour", name: "tour: out of bounds", args: "bounds", trap: true},
	{guest: "tour", name: "tour: not UTF-8", args: "utf8", trap: true},
}

// outcome is what can be seen of a run.
type outcome struct {
	stdout, stderr string
	code           int
	folder         string
}

// play runs a component with a root folder of its own, that belongs to the user who runs guests.
func (r row) play(t *testing.T, command ...string) outcome {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{root, filepath.Join(root, "home")} {
		if err := os.Chown(dir, cage.Nobody, cage.Nobody); err != nil {
			t.Fatal(err)
		}
	}
	before := []string{"--dir", root + "::/", "--env", "PWD=/"}
	for _, e := range r.env {
		before = append(before, "--env", e)
	}
	component := command[len(command)-1]
	args := append(append(command[1:len(command)-1:len(command)-1], before...), component)
	const patience = 5 * time.Minute // SpiderMonkey and CPython are compiled here in each run
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(args, strings.Fields(r.args)...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(r.stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		t.Fatal(ctx.Err(), err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), tree(t, root)}
}

// wasmtime is its command for a component of a guest. SpiderMonkey and CPython are compiled by its
// fast compiler: a fifth of the time, and what a guest does is the same. What it compiles is kept
// in .cache, by its own rules: its machine code is not what is tested.
func wasmtime(t *testing.T, all components.Tools, command, guest string) []string {
	t.Helper()
	folder, err := filepath.Abs("../../.cache/components/wasmtime")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "cache.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "[cache]\ndirectory = %q\n", folder), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{all.Wasmtime(), command, "-C", "cache=y", "-C", "cache-config=" + config}
	if guest == "javascript" || guest == "python" {
		args = append(args, "-C", "compiler=winch")
	}
	return args
}

// tree writes down a folder: names, kinds, permissions, contents.
func tree(t *testing.T, dir string) string {
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%s %s", path[len(dir):], info.Mode())
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var s unix.Stat_t
			if err := unix.Lstat(path, &s); err != nil {
				return err
			}
			fmt.Fprintf(&all, " %d links, %d bytes: %.100q", s.Nlink, len(data), data)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, " -> %s", target)
		}
		all.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestAsUnderWasmtime runs components as pods do and under wasmtime: same output, exit code and
// files.
func TestAsUnderWasmtime(t *testing.T) {
	all, dir := tools(t), t.TempDir()
	made := map[string]func() (string, error){}
	for name, g := range guests {
		made[name] = sync.OnceValues(func() (string, error) {
			file, err := filepath.Abs(g.file)
			if err != nil {
				return "", err
			}
			component := filepath.Join(dir, name+".wasm")
			return component, g.make(all, t.Context(), file, component)
		})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SUNABA_COMPONENTS_CACHE", t.TempDir())
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			component, err := made[r.guest]()
			need(t, err)
			want := r.play(t, slices.Concat(wasmtime(t, all, "run", r.guest), r.flags, []string{component})...)
			got := r.play(t, self, inPodFace, component)
			trapped := r.trap && got.code == 134 && want.code == 1 // wasmtime's code where the host ends a guest
			if got.code != want.code && !trapped {
				t.Errorf("exit code %d, under wasmtime %d\n%s", got.code, want.code, got.stderr)
			}
			differ(t, "standard output", got.stdout, want.stdout)
			differ(t, "files", got.folder, want.folder)
			if !r.trap {
				differ(t, "standard error", got.stderr, want.stderr)
			}
		})
	}
}

// differ says in which lines two texts differ.
func differ(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	said := 0
	for i := 0; i < max(len(a), len(b)) && said < 8; i++ {
		x, y := "(nothing)", "(nothing)"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			said++
			t.Errorf("%s, line %d:\nhere     %.200q\nwasmtime %.200q", what, i+1, x, y)
		}
	}
}
