package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, cfg Config) *Streams {
	t.Helper()
	cfg.Logger = quiet
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// child takes the child's ends as a process would: duplicates that outlive the shim's.
func child(t *testing.T, s *Streams) (stdin, stdout, stderr *os.File) {
	t.Helper()
	dup := func(f *os.File) *os.File {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		d := os.NewFile(uintptr(fd), "child")
		t.Cleanup(func() { d.Close() })
		return d
	}
	in, out, err, _ := s.Child()
	return dup(in), dup(out), dup(err)
}

func wait(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		t.Fatalf("%s: nothing happens", what)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var record = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) ([PF]) (.*)$`)

// parse checks every record's form and returns the streams' contents.
func parse(t *testing.T, text string) (stdout, stderr string) {
	t.Helper()
	if text != "" && !strings.HasSuffix(text, "\n") {
		t.Fatalf("log does not end with a newline: %q", text[max(0, len(text)-100):])
	}
	out := map[string]*strings.Builder{"stdout": {}, "stderr": {}}
	for line := range strings.Lines(text) {
		m := record.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("record %q has not the CRI form", line)
		}
		out[m[1]].WriteString(m[3])
		if m[2] == "F" {
			out[m[1]].WriteString("\n")
		}
	}
	return out["stdout"].String(), out["stderr"].String()
}

func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + path, Stderr: Scheme + path})
	_, stdout, stderr := child(t, s)
	s.Start(nil)
	long := strings.Repeat("x", 3*MaxLine+5)
	fmt.Fprintf(stdout, "one\ntwo\r\n%s\n\nlast without end", long)
	fmt.Fprint(stderr, "bad\n")
	stdout.Close()
	stderr.Close()
	wait(t, "drain", s.Drained())
	text := read(t, path)
	gotOut, gotErr := parse(t, text)
	if want := "one\ntwo\n" + long + "\n\nlast without end"; gotOut != want {
		t.Errorf("stdout has %d bytes, want %d", len(gotOut), len(want))
	}
	if gotErr != "bad\n" {
		t.Errorf("stderr %q", gotErr)
	}
	if n := strings.Count(text, " stdout P "); n != 4 {
		t.Errorf("%d partial records, want 3 of the long line and the last", n)
	}
	if err := s.Reopen(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("reopen after the end: %v", err)
	}
}

// A log that is none is refused: nothing waits for the reader of a pipe, and nothing writes where a
// link leads that a pod with the node's logs as a volume has laid there.
func TestLogThatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"alone", "read"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := os.OpenFile(filepath.Join(dir, "read"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	other := filepath.Join(dir, "other")
	for name, to := range map[string]string{"link": other, "chain": "link"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		filepath.Join(dir, "alone"), filepath.Join(dir, "read"), os.DevNull, filepath.Join(dir, "link"), filepath.Join(dir, "chain"),
	} {
		for name, open := range map[string]func(string, Limits, *slog.Logger) (*logFile, error){"open": openLog, "adopt": adoptLog} {
			if _, err := open(path, Limits{}, slog.New(slog.DiscardHandler)); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: %v", name, path, err)
			}
		}
	}
	if _, err := os.Lstat(other); err == nil {
		t.Error("a file was made where a link leads")
	}
	const text = "whole\nno record"
	if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := adoptLog(filepath.Join(dir, "link"), Limits{}, slog.New(slog.DiscardHandler)); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
	if got := read(t, other); got != text {
		t.Errorf("where a link leads is %q", got)
	}
}

func TestStreamsDoNotMixWithinALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + path, Stderr: Scheme + path})
	_, stdout, stderr := child(t, s)
	s.Start(nil)
	var wg sync.WaitGroup
	line := map[*os.File]string{stdout: strings.Repeat("o", 3000) + "\n", stderr: strings.Repeat("e", 5000) + "\n"}
	for f, text := range line {
		wg.Go(func() {
			for range 500 {
				io.WriteString(f, text)
			}
			f.Close()
		})
	}
	wg.Wait()
	wait(t, "drain", s.Drained())
	gotOut, gotErr := parse(t, read(t, path))
	if gotOut != strings.Repeat(line[stdout], 500) || gotErr != strings.Repeat(line[stderr], 500) {
		t.Error("output is not what was written")
	}
}

func TestReopenUnderLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	s := open(t, Config{Stdout: Scheme + path})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	const lines = 100_000
	go func() {
		defer stdout.Close()
		w := bytes.NewBuffer(nil)
		for i := range lines {
			fmt.Fprintf(w, "line %d %s\n", i, strings.Repeat("y", i%97))
			if w.Len() > 1000 {
				w.WriteTo(stdout)
			}
		}
		w.WriteTo(stdout)
	}()
	rotated := 0
	for done := false; !done; {
		select {
		case <-s.Drained():
			done = true
		default:
			if err := os.Rename(path, fmt.Sprintf("%s.%d", path, rotated)); err != nil {
				t.Fatal(err)
			}
			rotated++
			if err := s.Reopen(); errdefs.IsFailedPrecondition(err) {
				done = true // the last line has been written
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	var all strings.Builder
	for i := range rotated {
		all.WriteString(read(t, fmt.Sprintf("%s.%d", path, i)))
	}
	if data, err := os.ReadFile(path); err == nil {
		all.Write(data)
	}
	got, _ := parse(t, all.String())
	i := 0
	for line := range strings.Lines(got) {
		if want := fmt.Sprintf("line %d %s\n", i, strings.Repeat("y", i%97)); line != want {
			t.Fatalf("line %d is %q", i, line)
		}
		i++
	}
	if i != lines {
		t.Errorf("%d lines, want %d (%d rotations)", i, lines, rotated)
	}
	if rotated < 10 {
		t.Errorf("only %d rotations", rotated)
	}
}

func TestReopenErrorMakesNoFileAndLosesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pod")
	os.Mkdir(dir, 0o755)
	path := filepath.Join(dir, "0.log")
	s := open(t, Config{Stdout: Scheme + path})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	moved := dir + ".gone"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reopen in a missing directory: %v", err)
	}
	fmt.Fprintln(stdout, "still here")
	stdout.Close()
	wait(t, "drain", s.Drained())
	if got, _ := parse(t, read(t, filepath.Join(moved, "0.log"))); got != "still here\n" {
		t.Errorf("log %q", got)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("reopen made a directory")
	}
}

func TestFullDiskDoesNotBlockNorTear(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	path, other := filepath.Join(dir, "0.log"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, 900<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{Stdout: Scheme + path})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	for i := range 5000 {
		fmt.Fprintf(stdout, "line %d %s\n", i, strings.Repeat("z", 100))
	}
	if err := os.Remove(other); err != nil { // more than is on its way yet
		t.Fatal(err)
	}
	fmt.Fprintln(stdout, "after")
	stdout.Close()
	wait(t, "drain", s.Drained())
	got, _ := parse(t, read(t, path))
	if !strings.HasSuffix(got, "after\n") {
		t.Errorf("the line after the disk had room again is missing")
	}
}

func fifos(t *testing.T, names ...string) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, n := range names {
		p := filepath.Join(dir, n)
		if err := unix.Mkfifo(p, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

func TestFIFO(t *testing.T) {
	p := fifos(t, "in", "out", "err")
	type result struct{ out, err string }
	results := make(chan result, 1)
	go func() {
		var r result
		var wg sync.WaitGroup
		wg.Go(func() { data, _ := os.ReadFile(p[1]); r.out = string(data) })
		wg.Go(func() { data, _ := os.ReadFile(p[2]); r.err = string(data) })
		wg.Wait()
		results <- r
	}()
	s := open(t, Config{Stdin: p[0], Stdout: p[1], Stderr: p[2]})
	stdin, stdout, stderr := child(t, s)
	s.Start(nil)
	w, err := os.OpenFile(p[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "question")
	w.Close()
	in, err := io.ReadAll(stdin)
	if err != nil || string(in) != "question" {
		t.Errorf("stdin %q, %v", in, err)
	}
	big := strings.Repeat("answer", 100_000)
	fmt.Fprint(stdout, big)
	fmt.Fprint(stderr, "oops")
	stdout.Close()
	stderr.Close()
	wait(t, "drain", s.Drained())
	r := <-results
	if r.out != big || r.err != "oops" {
		t.Errorf("%d bytes of stdout (want %d), stderr %q", len(r.out), len(big), r.err)
	}
}

func TestFIFOReaderMayGoAndComeBack(t *testing.T) {
	p := fifos(t, "out")
	first, err := os.OpenFile(p[0], os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{Stdout: p[0]})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	first.Close()
	fmt.Fprint(stdout, "while nobody reads")
	time.Sleep(20 * time.Millisecond)
	second, err := os.Open(p[0])
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	stdout.Close()
	data, err := io.ReadAll(second)
	if err != nil || string(data) != "while nobody reads" {
		t.Errorf("read %q, %v", data, err)
	}
}

func TestFIFOWithoutReaderWaitsForTheContext(t *testing.T) {
	p := fifos(t, "out")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, Config{Stdout: p[0], Logger: quiet}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open: %v", err)
	}
}

// An input that is held has many writers, one after the other, and ends by CloseStdin alone.
func TestHeldInput(t *testing.T) {
	p := fifos(t, "in")
	s := open(t, Config{Stdin: p[0], HoldStdin: true})
	stdin, _, _ := child(t, s)
	s.Start(nil)
	for _, word := range []string{"one ", "two "} {
		if err := os.WriteFile(p[0], []byte(word), 0); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(word))
		if _, err := io.ReadFull(stdin, got); err != nil || string(got) != word {
			t.Fatalf("stdin %q, %v", got, err)
		}
	}
	s.CloseStdin()
	if data, err := io.ReadAll(stdin); err != nil || len(data) != 0 {
		t.Errorf("stdin %q, %v", data, err)
	}
}

func TestCloseStdinPassesOnWhatWasWritten(t *testing.T) {
	p := fifos(t, "in")
	s := open(t, Config{Stdin: p[0]})
	stdin, _, _ := child(t, s)
	s.Start(nil)
	w, err := os.OpenFile(p[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // stays open: the end comes from CloseStdin
	fmt.Fprint(w, "all of it")
	s.CloseStdin()
	data, err := io.ReadAll(stdin)
	if err != nil || string(data) != "all of it" {
		t.Errorf("stdin %q, %v", data, err)
	}
}

func TestDiscardAndEmptyInput(t *testing.T) {
	s := open(t, Config{})
	stdin, stdout, stderr := child(t, s)
	s.Start(nil)
	if data, err := io.ReadAll(stdin); err != nil || len(data) != 0 {
		t.Errorf("stdin %q, %v", data, err)
	}
	for _, f := range []*os.File{stdout, stderr} {
		if _, err := io.WriteString(f, strings.Repeat("-", 1<<20)); err != nil {
			t.Error(err)
		}
	}
	wait(t, "drain", s.Drained())
}

func TestTerminal(t *testing.T) {
	p := fifos(t, "in")
	path := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdin: p[0], Stdout: Scheme + path, Terminal: true})
	stdin, stdout, stderr := child(t, s)
	_, _, _, console := s.Child()
	if err := Resize(console, 91, 23); err != nil {
		t.Fatal(err)
	}
	size, err := unix.IoctlGetWinsize(int(stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col != 91 || size.Row != 23 {
		t.Errorf("size %+v, %v", size, err)
	}
	s.Start(nil)
	w, err := os.OpenFile(p[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "typed\n")
	buf := make([]byte, 100)
	n, err := stdin.Read(buf)
	if err != nil || string(buf[:n]) != "typed\n" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	w.Close()
	fmt.Fprint(stdout, "out\n")
	fmt.Fprint(stderr, "err\n")
	for _, f := range []*os.File{stdin, stdout, stderr} {
		f.Close()
	}
	wait(t, "drain", s.Drained())
	if got, _ := parse(t, read(t, path)); got != "typed\nout\nerr\n" { // the terminal's echo comes first
		t.Errorf("log %q", got)
	}
}

func TestCloseWithALivingHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + path})
	_, stdout, _ := child(t, s) // stays open, as in a process that outlives its parent
	s.Start(nil)
	fmt.Fprint(stdout, "said before\n")
	s.Close()
	wait(t, "drain", s.Drained())
	if got, _ := parse(t, read(t, path)); got != "said before\n" {
		t.Errorf("log %q", got)
	}
}

func TestCloseDoesNotWaitForAnInattentiveReader(t *testing.T) {
	p := fifos(t, "out")
	r, err := os.OpenFile(p[0], os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := open(t, Config{Stdout: p[0]})
	_, stdout, _ := child(t, s)
	s.Start(nil)
	go io.WriteString(stdout, strings.Repeat("x", 1<<20))
	time.Sleep(20 * time.Millisecond)
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("close took %v", took)
	}
}

func TestRefused(t *testing.T) {
	for name, cfg := range map[string]Config{
		"input from a log file": {Stdin: Scheme + "/x/0.log"},
		"relative log file":     {Stdout: Scheme + "0.log"},
		"two log files":         {Stdout: Scheme + t.TempDir() + "/a", Stderr: Scheme + "/b"},
	} {
		cfg.Logger = quiet
		if _, err := Open(t.Context(), cfg); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, cfg := range map[string]Config{
		"log in a missing directory": {Stdout: Scheme + "/nowhere/at/all/0.log"},
		"missing FIFO":               {Stdout: "/nowhere/fifo"},
		"missing input":              {Stdin: "/nowhere/fifo"},
		"missing terminal input":     {Stdin: "/nowhere/fifo", Terminal: true},
	} {
		cfg.Logger = quiet
		if _, err := Open(t.Context(), cfg); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoFilesStayOpen(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	path := filepath.Join(t.TempDir(), "0.log")
	p := fifos(t, "in")
	cycle := func(start bool, cfg Config) {
		cfg.Logger = quiet
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if start {
			s.Start(nil)
		}
		s.Close()
	}
	cycle(true, Config{Stdout: Scheme + path})
	before := count()
	for _, start := range []bool{true, false} {
		cycle(start, Config{Stdin: p[0], Stdout: Scheme + path, Stderr: Scheme + path})
		cycle(start, Config{Stdin: p[0], Stdout: Scheme + path, Terminal: true})
		cycle(start, Config{})
	}
	for deadline := time.Now().Add(time.Minute); count() > before; time.Sleep(time.Millisecond) { // what others leave may go late
		if time.Now().After(deadline) {
			t.Fatalf("%d files open, %d before", count(), before)
		}
	}
}

func BenchmarkLogLines(b *testing.B) {
	path := filepath.Join(b.TempDir(), "0.log")
	l, err := openLog(path, Limits{}, quiet)
	if err != nil {
		b.Fatal(err)
	}
	s := l.stream("stdout")
	block := []byte(strings.Repeat(strings.Repeat("l", 99)+"\n", 160))
	b.SetBytes(int64(len(block)))
	b.ReportAllocs()
	for b.Loop() {
		s.Write(block)
	}
	s.Close()
}

func TestPipesOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root gives files away")
	}
	dir := t.TempDir()
	s, err := Open(t.Context(), Config{Stdin: Attachable, Stdout: Scheme + filepath.Join(dir, "log"), UID: 1234, GID: 4321, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stdin, stdout, stderr, _ := s.Child()
	for file, given := range map[*os.File]bool{stdin: true, stdout: true, stderr: false} { // nobody gives /dev/null away
		var st unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		if (st.Uid == 1234 && st.Gid == 4321) != given {
			t.Errorf("%s belongs to %d:%d", file.Name(), st.Uid, st.Gid)
		}
	}
}
