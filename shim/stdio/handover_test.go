package stdio

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutTimes is a log without its times.
func withoutTimes(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		_, rest, whole := strings.Cut(line, " ")
		if !whole {
			rest = "torn: " + line
		}
		out.WriteString(rest)
	}
	return out.String()
}

// copiesOf are what a supervisor has of ends.
func copiesOf(t *testing.T, ends map[string]*os.File) map[string]*os.File {
	t.Helper()
	copies := map[string]*os.File{}
	for name, f := range ends {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			err = unix.SetNonblock(fd, true) // Fd had it block
		}
		if err != nil {
			t.Fatal(err)
		}
		copies[name] = os.NewFile(uintptr(fd), name)
	}
	return copies
}

func TestAdoptedStreamsGoOn(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	ended := 0
	cfg := Config{
		Stdin: Attachable, Stdout: Scheme + log, Stderr: Scheme + log, Logger: slog.New(slog.DiscardHandler),
		InputEnds: func() { ended++ },
	}
	dead, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stdin, stdout, stderr, _ := dead.Child()
	for i, f := range []*os.File{stdin, stdout, stderr} { // the process's own
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		switch i {
		case 0:
			stdin = os.NewFile(uintptr(fd), "stdin")
		case 1:
			stdout = os.NewFile(uintptr(fd), "stdout")
		default:
			stderr = os.NewFile(uintptr(fd), "stderr")
		}
	}
	ends := copiesOf(t, dead.Ends())
	if len(ends) != 3 || ends[EndStdin] == nil {
		t.Fatalf("ends %v", ends)
	}
	dead.Close() // without having read anything
	if ended == 0 {
		t.Error("the input was closed and nobody told")
	}
	if _, err := stdout.WriteString("while nobody reads\n"); err != nil {
		t.Fatal(err)
	}
	s, err := Adopt(cfg, ends)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(nil)
	if _, err := stderr.WriteString("thereafter\n"); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	stderr.Close()
	<-s.Drained()
	got := withoutTimes(t, log)
	if got != "stdout F while nobody reads\nstderr F thereafter\n" && got != "stderr F thereafter\nstdout F while nobody reads\n" {
		t.Errorf("log %q", got)
	}
	s.CloseStdin()
	if data, err := io.ReadAll(stdin); err != nil || len(data) > 0 {
		t.Errorf("the input: %q, %v", data, err)
	}
	s.Close()
}

func TestLogsAreMended(t *testing.T) {
	record := func(stream, tag, content string) string {
		return "2024-01-01T00:00:00.000000000Z " + stream + " " + tag + " " + content + "\n"
	}
	whole := record("stdout", "F", "one") + record("stderr", "F", "two")
	for name, c := range map[string]struct{ before, after string }{
		"empty":                 {"", ""},
		"whole":                 {whole, "stdout F one\nstderr F two\n"},
		"torn":                  {whole + "2024-01-01T00:00:00.0000", "stdout F one\nstderr F two\n"},
		"torn at its begin":     {"2024-01-01T00", ""},
		"a line that went on":   {whole + record("stdout", "P", "begin"), "stdout F one\nstderr F two\nstdout P begin\nstdout F \n"},
		"a line that had ended": {record("stdout", "P", "begin") + record("stdout", "F", "end"), "stdout P begin\nstdout F end\n"},
		"torn and went on":      {record("stdout", "P", "a") + record("stderr", "P", "b") + "2024", "stdout P a\nstderr P b\nstdout F \nstderr F \n"},
		"long":                  {strings.Repeat(whole, 2000) + "2024", strings.Repeat("stdout F one\nstderr F two\n", 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it is mended once
				if err := mend(path); err != nil {
					t.Fatal(err)
				}
			}
			if got := withoutTimes(t, path); got != c.after {
				t.Errorf("log %.200q, want %.200q", got, c.after)
			}
		})
	}
}

func TestAdoptedEndsThatAreMissing(t *testing.T) {
	for name, cfg := range map[string]Config{
		"pipes":    {Stdin: Attachable, Stdout: Scheme + filepath.Join(t.TempDir(), "0.log")},
		"terminal": {Stdin: Attachable, Stdout: Attachable, Terminal: true},
	} {
		cfg.Logger = slog.New(slog.DiscardHandler)
		s, err := Adopt(cfg, map[string]*os.File{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.Start(nil)
		<-s.Drained()
		s.CloseStdin()
		s.Close()
	}
}

// Output that nobody was attached to before waits for an attacher of the successor's too.
func TestAdoptedStreamsAwait(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	cfg := Config{Stdout: Scheme + log, Logger: slog.New(slog.DiscardHandler), AwaitAttach: true}
	dead, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, out, _, _ := dead.Child()
	fd, err := unix.Dup(int(out.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.NewFile(uintptr(fd), "stdout")
	ends := copiesOf(t, dead.Ends())
	dead.Close()
	s, err := Adopt(cfg, ends)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Start(nil)
	io.WriteString(stdout, "first\n")
	r := hear(t, s)
	stdout.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "first\n" {
		t.Errorf("the attacher got %q, %v", got, err)
	}
	wait(t, "drain", s.Drained())
}
