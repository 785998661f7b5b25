package stdio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestLimitsAreText(t *testing.T) {
	for _, l := range []Limits{{}, {Rate: 1}, {Rate: 1, Burst: 2, Size: 3}, {Size: 9 << 40}} {
		if got, err := ParseLimits(l.String()); err != nil || got != l {
			t.Errorf("%+v as text is %q, read %+v, %v", l, l, got, err)
		}
	}
	for _, text := range []string{"rate", "rate=", "rate=x", "rate=-1", "speed=1", "rate=1,,size=2", "rate=99999999999999999999"} {
		if got, err := ParseLimits(text); !errors.Is(err, errdefs.ErrInvalidArgument) || got != (Limits{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// limitedFile is a log with limits and its two streams.
func limitedFile(t *testing.T, l Limits) (file *logFile, stdout, stderr sink) {
	t.Helper()
	file, err := openLog(filepath.Join(t.TempDir(), "0.log"), l, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return file, file.stream("stdout"), file.stream("stderr")
}

// lines are the records of a log by what they hold, without their times.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		all = append(all, rest)
	}
	return all
}

// past moves a log's clock on, as if so much time had passed.
func past(l *logFile, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meter.at = l.meter.at.Add(-d)
}

func say(t *testing.T, s sink, text string) {
	t.Helper()
	if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
}

const flood = 100000

// TestRateLimit floods a log and looks whether what is kept, and what the log says of the rest, is
// all.
func TestRateLimit(t *testing.T) {
	l, stdout, stderr := limitedFile(t, Limits{Rate: 1, Burst: 4000}) // what gathers within the test is nothing
	for i := range flood {
		say(t, stdout, fmt.Sprintf("line %d\n", i))
	}
	say(t, stderr, "this too\n")
	info, err := os.Stat(l.path)
	if err != nil || info.Size() < 3900 || info.Size() > 4200 {
		t.Errorf("the log has %d bytes, %v", info.Size(), err)
	}
	kept := lines(t, l.path)
	for i, line := range kept {
		if line != fmt.Sprintf("stdout F line %d", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	past(l, time.Hour)
	say(t, stderr, "after it\n")
	after := lines(t, l.path)[len(kept):]
	want := []string{fmt.Sprintf("stderr F sunaba: dropped %d lines of %d bytes beyond the log's limits (rate=1,burst=4000)",
		flood+1-len(kept), bytesOf(len(kept), flood)+len("this too\n")), "stderr F after it"}
	if strings.Join(after, "\n") != strings.Join(want, "\n") {
		t.Errorf("after the flood:\n%q, want\n%q", after, want)
	}
	stdout.Close()
	stderr.Close()
}

func bytesOf(from, to int) (n int) {
	for i := from; i < to; i++ {
		n += len(fmt.Sprintf("line %d\n", i))
	}
	return n
}

// TestRateLimitEndsLines has a line without an end: it is broken off so that the next does not
// continue it.
func TestRateLimitEndsLines(t *testing.T) {
	l, stdout, stderr := limitedFile(t, Limits{Rate: 1, Burst: 20000})
	piece := strings.Repeat("x", MaxLine)
	for range 100 {
		say(t, stdout, piece)
	}
	say(t, stdout, "the end\n")
	past(l, 24*time.Hour)
	say(t, stdout, "another\n")
	got := lines(t, l.path)
	if len(got) != 5 || got[0] != "stdout P "+piece || got[1] != "stdout P "+piece || got[2] != "stdout F " ||
		!strings.HasPrefix(got[3], "stderr F sunaba: dropped 1 lines of ") || got[4] != "stdout F another" {
		for i, line := range got {
			t.Errorf("%d: %.80q", i, line)
		}
	}
	stdout.Close()
	stderr.Close()
}

// TestRateLimitTellsInSilence waits for the line about what was dropped when nothing else is
// written any more, also after a rotation.
func TestRateLimitTellsInSilence(t *testing.T) {
	l, stdout, stderr := limitedFile(t, Limits{Rate: 10000, Burst: 500})
	for range 2 {
		for range 100 {
			say(t, stdout, "a line that is one of many\n")
		}
		deadline := time.Now().Add(time.Minute)
		for {
			if got := lines(t, l.path); len(got) > 0 && strings.Contains(got[len(got)-1], "sunaba: dropped") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the log does not say what it lacks")
			}
			time.Sleep(time.Millisecond)
		}
		for range 100 { // what is dropped waits for its turn, and is told of at the end of the file
			say(t, stdout, "a line that is one of many\n")
		}
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			t.Fatal(err)
		}
		if err := l.reopen(); err != nil {
			t.Fatal(err)
		}
	}
	stdout.Close()
	stderr.Close()
}

func TestSizeLimit(t *testing.T) {
	l, stdout, stderr := limitedFile(t, Limits{Size: 1000})
	for i := range flood {
		say(t, stdout, fmt.Sprintf("line %d\n", i))
	}
	old := l.path + ".1"
	if err := os.Rename(l.path, old); err != nil {
		t.Fatal(err)
	}
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	say(t, stderr, "new\n")
	if got := lines(t, l.path); len(got) != 1 || got[0] != "stderr F new" {
		t.Errorf("after the rotation: %q", got)
	}
	got := lines(t, old)
	kept := len(got) - 2
	for i, line := range got[:kept] {
		if line != fmt.Sprintf("stdout F line %d", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	full := "stderr F sunaba: this log has reached its limit (size=1000), lines are dropped until it is rotated"
	lacks := fmt.Sprintf("stderr F sunaba: dropped %d lines of %d bytes beyond the log's limits (size=1000)", flood-kept, bytesOf(kept, flood))
	if got[kept] != full || got[kept+1] != lacks {
		t.Errorf("at its end: %q", got[kept:])
	}
	if info, err := os.Stat(old); err != nil || info.Size() > 1000+300 {
		t.Errorf("the log has %d bytes, %v", info.Size(), err)
	}
	// A file that is there already counts, and the end tells too.
	stdout.Close()
	stderr.Close()
	l, err := openLog(old, Limits{Size: 1000}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	stdout = l.stream("stdout")
	say(t, stdout, "more\n")
	stdout.Close()
	got = lines(t, old)
	if last := got[len(got)-1]; last != "stderr F sunaba: dropped 1 lines of 5 bytes beyond the log's limits (size=1000)" {
		t.Errorf("at the end: %q", last)
	}
}

// TestLimitsTakeNoMemory has a log drop lines: they cost no more than those that are kept.
func TestLimitsTakeNoMemory(t *testing.T) {
	line := []byte(strings.Repeat("x", 100) + "\n")
	cost := func(l Limits) float64 {
		_, stdout, _ := limitedFile(t, l)
		say(t, stdout, string(line))
		return testing.AllocsPerRun(1000, func() { _, _ = stdout.Write(line) })
	}
	if kept, dropped := cost(Limits{}), cost(Limits{Rate: 1, Burst: 1}); dropped > kept {
		t.Errorf("%v allocations for a line that is dropped, %v for one that is kept", dropped, kept)
	}
}

func TestAttachersSeeWhatALogDrops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	s := open(t, Config{Stdout: Scheme + path, Limits: Limits{Size: 1}})
	out := fifos(t, "out")[0]
	reader, err := os.OpenFile(out, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	_, stdout, _ := child(t, s)
	s.Start(nil)
	if err := s.Attach(Attachment{Stdout: out}); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.WriteString("seen\n"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := reader.Read(got); err != nil || string(got) != "seen\n" {
		t.Errorf("attached: %q, %v", got, err)
	}
	stdout.Close()
	wait(t, "drained", s.Drained())
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "seen") || strings.Count(string(text), "\n") != 2 {
		t.Errorf("log: %q, %v", text, err)
	}
}
