package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
)

// shimLog writes a log as a shim does: to one open file, until it is told to open the path again.
type shimLog struct {
	t    *testing.T
	path string
	mu   sync.Mutex
	file *os.File
	opened,
	lines int
}

func newShimLog(t *testing.T) *shimLog {
	s := &shimLog{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	if err := s.reopen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.file.Close() })
	return s
}

func (s *shimLog) reopen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if s.file != nil {
		s.file.Close()
	}
	s.file = f
	s.opened++
	return nil
}

// write writes lines of 1 KiB.
func (s *shimLog) write(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		if _, err := fmt.Fprintf(s.file, "%sstdout F %1000d\n", stamp, s.lines); err != nil {
			s.t.Error(err)
		}
		s.lines++
	}
}

func (s *shimLog) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(node.Patience); !is(); {
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", node.Patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// A log that is rotated many times is read whole and in order, and no file is left but the last.
func TestRotatedLogIsReadWhole(t *testing.T) {
	s := newShimLog(t)
	var out node.Buffer
	log := &rotated{path: s.path, max: 16 << 10, reopen: s.reopen, problem: func(text string) { t.Error(text) }}
	f := follow(log, "", &out, &out, func() {})
	for round := range 6 {
		s.write(40)
		until(t, "the log was not rotated", func() bool { return s.times() > round+1 })
		until(t, "it was not read", func() bool { return strings.Count(out.String(), "\n") == s.lines })
	}
	s.write(5)
	if err := f.finish(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != s.lines {
		t.Fatalf("%d lines, want %d", len(lines), s.lines)
	}
	for i, line := range lines {
		if strings.TrimSpace(line) != fmt.Sprint(i) {
			t.Fatalf("line %d is %q", i, strings.TrimSpace(line))
		}
	}
	files, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v; want the last one", files, err)
	}
}

// An output that nobody reads does not fill the disk: the oldest part is dropped, and said so.
func TestLogOfASlowReaderIsBounded(t *testing.T) {
	s := newShimLog(t)
	out := &gate{open: make(chan struct{})}
	var said node.Buffer
	log := &rotated{path: s.path, max: 16 << 10, reopen: s.reopen, problem: func(text string) {
		<-out.open // the message goes where nobody reads either
		fmt.Fprintln(&said, text)
	}}
	f := follow(log, "", out, out, func() {})
	for round := range 2 * keepLogs {
		s.write(40)
		until(t, "the log was not rotated", func() bool { return s.times() > round+1 })
	}
	files, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil || len(files) > keepLogs+1 {
		t.Errorf("%d files, %v; want %d at most", len(files), err, keepLogs+1)
	}
	close(out.open)
	if err := f.finish(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "a part of the log was dropped") {
		t.Errorf("it said %q", said.String())
	}
	if text := out.String(); !strings.HasPrefix(strings.TrimLeft(text, " "), "0\n") || !strings.HasSuffix(text, fmt.Sprintf(" %d\n", s.lines-1)) {
		t.Errorf("the first or the last line is missing in %d bytes", len(text))
	}
}

// gate is a writer that waits until it is opened.
type gate struct {
	open chan struct{}
	node.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

// A server that cannot open the log again goes on writing to the file that is read.
func TestLogThatCannotBeReopened(t *testing.T) {
	s := newShimLog(t)
	var out, said node.Buffer
	log := &rotated{
		path: s.path, max: 16 << 10,
		reopen:  func() error { return errors.New("no server") },
		problem: func(text string) { fmt.Fprintln(&said, text) },
	}
	f := follow(log, "", &out, &out, func() {})
	s.write(40)
	until(t, "it said nothing", func() bool { return strings.Contains(said.String(), "failed to rotate the log: no server") })
	s.write(40)
	if err := f.finish(); err != nil || strings.Count(out.String(), "\n") != s.lines {
		t.Fatalf("%v; %d lines, want %d", err, strings.Count(out.String(), "\n"), s.lines)
	}
}
