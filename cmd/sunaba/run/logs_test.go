package run

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

const stamp = "2026-01-02T03:04:05.000000006Z "

// appendLog writes to a log as a shim does.
func appendLog(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// steady is a log that nothing rotates.
func steady(path string) *rotated { return &rotated{path: path, max: 1 << 40} }

func TestFollow(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for _, tt := range []struct {
		name, log, prefix string
		out, err          string
	}{
		{name: "nothing"},
		{name: "lines", log: stamp + "stdout F one\n" + stamp + "stderr F two\n" + stamp + "stdout F \n", out: "one\n\n", err: "two\n"},
		{name: "spaces", log: stamp + "stdout F  a  b \n", out: " a  b \n"},
		{name: "pieces", log: stamp + "stdout P on\n" + stamp + "stdout P e, \n" + stamp + "stdout F two\n", out: "one, two\n"},
		{name: "tag with more", log: stamp + "stdout P:x on\n" + stamp + "stdout F:x e\n", out: "one\n"},
		{name: "no end of the last line", log: stamp + "stdout P prompt> \n", out: "prompt> "},
		{name: "half a line at the end", log: stamp + "stdout F one\n" + stamp + "stdo", out: "one\n"},
		{name: "prefix", prefix: "web", log: stamp + "stdout F one\n" + stamp + "stderr F two\n", out: "[web] one\n", err: "[web] two\n"},
		{name: "prefix and pieces", prefix: "web", log: stamp + "stdout P on\n" + stamp + "stderr F two\n" + stamp + "stdout F e\n", out: "[web] one\n", err: "[web] two\n"},
		{name: "prefix and no end", prefix: "web", log: stamp + "stdout P prompt> \n", out: "[web] prompt> \n"},
		{name: "prefix and very long", prefix: "w", log: strings.Repeat(stamp+"stdout P "+long+"\n", 3) + stamp + "stdout F .\n", out: "[w] " + strings.Repeat(long, 3) + "\n[w] .\n"},
		{name: "no lines of a log", log: "hello\n" + stamp + "stdin F x\n" + stamp + "stdout F one\n", out: "one\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			if tt.log != "" {
				appendLog(t, path, tt.log)
			}
			var out, errOut node.Buffer
			f := follow(steady(path), tt.prefix, &out, &errOut, func() {})
			err := f.finish()
			if err != nil {
				t.Fatal(err)
			}
			if err != f.finish() {
				t.Error("a second finish answers something else")
			}
			if out.String() != tt.out || errOut.String() != tt.err {
				t.Errorf("stdout %q, stderr %q; want %q, %q", out.String(), errOut.String(), tt.out, tt.err)
			}
		})
	}
}

// Lines appear while the container runs, whatever pieces the file grows by,
// and none that was written before finish is lost.
func TestFollowGrowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	var out node.Buffer
	f := follow(steady(path), "", &out, &out, func() {})
	appendLog(t, path, stamp+"stdout F fir")
	appendLog(t, path, "st\n")
	for end := time.Now().Add(node.Patience); out.String() != "first\n"; {
		if time.Now().After(end) {
			t.Fatalf("after %v: %q", node.Patience, out.String())
		}
		time.Sleep(time.Millisecond)
	}
	want := "first\n"
	for i := range 1000 {
		appendLog(t, path, fmt.Sprintf("%sstdout F line %d\n", stamp, i))
		want += fmt.Sprintf("line %d\n", i)
	}
	if err := f.finish(); err != nil || out.String() != want {
		t.Fatalf("%v; %d bytes, want %d", err, len(out.String()), len(want))
	}
}

func TestFollowTellsOfABrokenWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	appendLog(t, path, stamp+"stdout F x\n")
	told, to := false, broken{errors.New("broken")}
	f := follow(steady(path), "", to, to, func() { told = true })
	if err := f.finish(); err == nil || err.Error() != "broken" {
		t.Fatalf("error %v", err)
	}
	if !told {
		t.Error("nobody was told that the output cannot be written")
	}
}

// Output that could not be written is a failure of the run, whatever its containers ended with; a
// reader that has exited is none.
func TestLostOutput(t *testing.T) {
	for name, writer := range map[string]struct {
		fail error
		code int
		text string
	}{
		"full disk":  {fmt.Errorf("write /dev/stdout: %w", syscall.ENOSPC), 1, `run pod "default/p": write output of container "a": write /dev/stdout: no space left on device`},
		"no readers": {fmt.Errorf("write /dev/stdout: %w", syscall.EPIPE), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := parseObjects("f.yaml", []byte(podHead+"spec: {containers: [{name: a, image: i}]}\n"))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "0.log")
			appendLog(t, path, stamp+"stdout F x\n")
			r := &runner{Options: Options{ExitCode: Any, Logger: slog.New(slog.DiscardHandler)}, objects: set}
			s := &server{runner: r, ends: map[string]*runtime.ContainerStatus{"a": {FinishedAt: 1}}}
			to := broken{writer.fail}
			s.containers = []*container{{name: "a", log: follow(steady(path), "", to, to, func() {})}}
			s.drain()
			code, err := (&ending{runner: r, status: corev1.PodStatus{Phase: corev1.PodSucceeded}}).code(s, nil)
			if code != writer.code || (err == nil) != (writer.text == "") || err != nil && err.Error() != writer.text {
				t.Errorf("code %d, %v", code, err)
			}
		})
	}
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }
