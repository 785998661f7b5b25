package crilog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

const stamp = "2026-01-02T03:04:05.000000006Z "

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// buffer is a writer that may be read meanwhile.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestRead(t *testing.T) {
	three := "2026-01-02T03:04:05.000000001Z stdout F one\n2026-01-02T03:04:06Z stderr F two\n2026-01-02T03:04:07.5Z stdout F three\n"
	big := strings.Repeat(stamp+"stdout F "+strings.Repeat("x", 1000)+"\n", 100)
	for _, tt := range []struct {
		name, log string
		o         Options
		want      string
	}{
		{name: "nothing", o: Options{Tail: -1}},
		{name: "both streams in their order", log: three, o: Options{Tail: -1}, want: "one\ntwo\nthree\n"},
		{name: "tail", log: three, o: Options{Tail: 2}, want: "two\nthree\n"},
		{name: "tail of more than there is", log: three, o: Options{Tail: 9}, want: "one\ntwo\nthree\n"},
		{name: "tail of none", log: three, o: Options{Tail: 0}},
		{name: "tail over blocks", log: big + three, o: Options{Tail: 4}, want: strings.Repeat("x", 1000) + "\none\ntwo\nthree\n"},
		{name: "tail of many blocks", log: three + big, o: Options{Tail: 101}, want: "three\n" + strings.Repeat(strings.Repeat("x", 1000)+"\n", 100)},
		{name: "since", log: three, o: Options{Tail: -1, Since: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)}, want: "two\nthree\n"},
		{name: "timestamps", log: three, o: Options{Tail: 2, Timestamps: true}, want: "2026-01-02T03:04:06.000000000Z two\n2026-01-02T03:04:07.500000000Z three\n"},
		{name: "prefix and timestamps", log: three, o: Options{Tail: 1, Timestamps: true, Prefix: "[pod/web/app] "}, want: "[pod/web/app] 2026-01-02T03:04:07.500000000Z three\n"},
		{name: "pieces of a line", log: stamp + "stdout P on\n" + stamp + "stdout F e\n", o: Options{Tail: -1, Timestamps: true}, want: stamp + "one\n"},
		{name: "whole lines of two streams", log: stamp + "stdout P on\n" + stamp + "stderr F two\n" + stamp + "stdout F e\n" + stamp + "stdout P end", o: Options{Tail: -1, Whole: true}, want: "two\none\n"},
		{name: "a line without its end", log: stamp + "stdout P prompt> \n", o: Options{Tail: -1}, want: "prompt> "},
		{name: "a whole line without its end", log: stamp + "stdout P prompt> \n", o: Options{Tail: -1, Whole: true, Prefix: "[x] "}, want: "[x] prompt> \n"},
		{name: "limit", log: three, o: Options{Tail: -1, LimitBytes: 6}, want: "one\ntw"},
		{name: "limit at the end of a line", log: three, o: Options{Tail: -1, LimitBytes: 4}, want: "one\n"},
		{name: "no records", log: "hello\n" + stamp + "stdin F no\nno-time stdout F no\n" + stamp + "stdout F:x yes\n", o: Options{Tail: -1}, want: "yes\n"},
		{name: "a record that is too long", log: stamp + "stdout F " + strings.Repeat("y", maxRecord) + "\n" + three, o: Options{Tail: -1}, want: "one\ntwo\nthree\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "0.log")
			write(t, path, tt.log)
			var out buffer
			if err := Read(t.Context(), path, tt.o, &out); err != nil || out.String() != tt.want {
				t.Errorf("%v, %q, want %q", err, out.String(), tt.want)
			}
		})
	}
}

func TestReadWhatIsNoLog(t *testing.T) {
	dir := t.TempDir()
	var out buffer
	if err := Read(t.Context(), filepath.Join(dir, "none"), Options{}, &out); !errdefs.IsNotFound(err) {
		t.Errorf("nothing: %v", err)
	}
	if err := Read(t.Context(), dir, Options{}, &out); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a folder: %v", err)
	}
	path := filepath.Join(dir, "0.log")
	write(t, path, stamp+"stdout F x\n")
	if err := Read(t.Context(), path, Options{Tail: -1}, broken{}); err == nil || err.Error() != "broken" {
		t.Errorf("a broken writer: %v", err)
	}
	// A container that ended before it had a log.
	if err := Read(t.Context(), filepath.Join(dir, "none"), Options{Running: func(context.Context) bool { return false }}, &out); err != nil || out.String() != "" {
		t.Errorf("%v, %q", err, out.String())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestFollowEndsWithItsCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, stamp+"stdout F one\n")
	ctx, cancel := context.WithCancel(t.Context())
	var out buffer
	done := make(chan error, 1)
	go func() {
		done <- Read(ctx, path, Options{Tail: -1, Running: func(context.Context) bool { return true }}, &out)
	}()
	wait(t, "the first line", func() bool { return out.String() == "one\n" })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// LG2: no line is missing and none comes twice while the log is rotated, however often that happens
// between two looks, and also if older ones are packed.
func TestFollowOverRotation(t *testing.T) {
	for name, pack := range map[string]bool{"plain": false, "packed": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "3.log")
			write(t, path, "")
			var running atomic.Bool
			running.Store(true)
			var out buffer
			done := make(chan error, 1)
			go func() {
				done <- Read(t.Context(), path, Options{Tail: -1, Running: func(context.Context) bool { return running.Load() }}, &out)
			}()
			var want strings.Builder
			var rotated []string
			n := 0
			for round := range 30 {
				var lines strings.Builder
				for range 50 {
					fmt.Fprintf(&lines, "%s stdout F line %d\n", time.Unix(int64(n), 0).UTC().Format(timeFormat), n)
					fmt.Fprintf(&want, "line %d\n", n)
					n++
				}
				write(t, path, lines.String())
				if round%10 == 0 { // the reader is at the end of a file now and then, and in the middle of many else
					so := want.String()
					wait(t, "what was written", func() bool { return out.String() == so })
				}
				old := fmt.Sprintf("%s.20260102-0304%02d", path, round)
				if err := os.Rename(path, old); err != nil {
					t.Fatal(err)
				}
				write(t, path, "")
				if rotated = append(rotated, old); pack && len(rotated) > 1 {
					packFile(t, rotated[len(rotated)-2])
				}
			}
			write(t, path, stamp+"stdout F last\n")
			running.Store(false)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != want.String()+"last\n" {
				t.Errorf("%d lines, want %d", strings.Count(got, "\n"), n+1)
			}
		})
	}
}

// Parts follow each other as their names say, also if the one that was read is being packed, or was
// and the clock was set back.
func TestFollowOverPackedPart(t *testing.T) {
	for _, packing := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "0.log")
		parts := []string{path + ".20260102-030401", path + ".20260102-030402"}
		write(t, path, "2026-01-02T03:04:05Z stdout F one\n")
		var out buffer
		r := &reader{path: path, o: Options{Tail: -1}, out: &out, errOut: &out, held: map[string][]byte{}, atStart: true}
		defer r.close()
		if err := errors.Join(r.start(t.Context()), r.drain(t.Context()), os.Rename(path, parts[0]), os.Link(parts[0], path)); err != nil {
			t.Fatal(err)
		}
		packFile(t, parts[0])
		if packing { // both are there until the first is removed
			if err := os.Link(path, parts[0]); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, parts[1], "2026-01-01T00:00:00Z stdout F two\n")
		write(t, path, "2026-01-01T00:00:01Z stdout F three\n")
		for range 2 {
			if _, err := r.advance(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != "one\ntwo\nthree\n" {
			t.Errorf("packing %v: %q", packing, out.String())
		}
	}
}

func packFile(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path + ".tmp")
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	_, err = z.Write(data)
	if err := errors.Join(err, z.Close(), f.Close(), os.Rename(path+".tmp", path+".gz"), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
}

// A log that is being rotated is not there for a moment.
func TestReadWhileItIsRotated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs [1]")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "0.log")
	write(t, path+".20260102-030401", stamp+"stdout F one\n")
	write(t, path+".new", stamp+"stdout F two\n")
	time.AfterFunc(2*followEvery, func() {
		if err := os.Rename(path+".new", path); err != nil {
			t.Error(err)
		}
	})
	var out buffer
	if err := Read(t.Context(), path, Options{Tail: -1}, &out); err != nil || out.String() != "two\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestFollowOfALogThatIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path, stamp+"stdout F one\n"+stamp+"stdout F two\n")
	var running atomic.Bool
	running.Store(true)
	var out buffer
	done := make(chan error, 1)
	go func() {
		done <- Read(t.Context(), path, Options{Tail: -1, Running: func(context.Context) bool { return running.Load() }}, &out)
	}()
	wait(t, "the lines", func() bool { return out.String() == "one\ntwo\n" })
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, stamp+"stdout F three\n")
	wait(t, "the line after the cut", func() bool { return out.String() == "one\ntwo\nthree\n" })
	running.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
