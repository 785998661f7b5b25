package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// LogLine is one line of a log in CRI format. Tag is F, or P where the text continues in the next
// line.
type LogLine struct {
	At                time.Time
	Stream, Tag, Text string
}

// ReadLog reads a container's log, except a last line that is still being written. A log that is
// not there has no lines.
//
// # Errors
//
// A line that is not of such a log; what came before it is returned too.
func ReadLog(path string) ([]LogLine, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lines []LogLine
	for text := range strings.Lines(string(data)) {
		text, whole := strings.CutSuffix(text, "\n")
		if !whole {
			break
		}
		f := strings.SplitN(text, " ", 4)
		if len(f) != 4 || f[1] != "stdout" && f[1] != "stderr" || f[2] != "F" && f[2] != "P" {
			return lines, fmt.Errorf("%s: not a line of a CRI log: %q", path, text)
		}
		at, err := time.Parse("2006-01-02T15:04:05.000000000Z07:00", f[0])
		if err != nil {
			return lines, fmt.Errorf("%s: not a line of a CRI log: %q: %w", path, text, err)
		}
		lines = append(lines, LogLine{at, f[1], f[2], f[3]})
	}
	return lines, nil
}

// Text is what a log says, without times and tags.
func Text(lines []LogLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Text)
		if l.Tag == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Buffer is a bytes.Buffer that one goroutine writes and another one reads.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
