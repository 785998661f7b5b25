package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of a process's streams and of what stands at their other ends, for Ends and Adopt.
const (
	EndStdin   = "stdin" // our end of the process's input, without a terminal
	endConsole = "console"
	endFIFO    = "stdin.fifo" // the caller's
	endTo      = ".to"        // after stdout or stderr: FIFO, file or program that takes it
	endHold    = ".hold"      // after stdout or stderr: our reading end of a FIFO
)

// Ends are the files that a successor of this process needs to continue with the streams, by names
// that Adopt knows: pipes, FIFOs and the terminal, once it is known. A log file is opened anew.
func (s *Streams) Ends() map[string]*os.File {
	ends := map[string]*os.File{}
	add := func(name string, f *os.File) {
		if f != nil {
			ends[name] = f
		}
	}
	add(endConsole, s.console)
	if s.stdin != nil {
		add(endFIFO, s.stdin.src)
		if to, ok := s.stdin.dst.(*fileSink); ok && !to.keep {
			add(EndStdin, to.File)
		}
	}
	if s.input != nil && !s.input.terminal {
		add(EndStdin, s.input.file)
	}
	for _, c := range s.outputs {
		if c.src != s.console {
			add(c.stream, c.src)
		}
		if to, ok := c.dst.(*fileSink); ok {
			add(c.stream+endTo, to.File)
			add(c.stream+endHold, to.beside)
		}
	}
	return ends
}

// Adopt continues the streams of a process that another process had opened with the same Config,
// and whose Ends are here; they belong to the streams from now on. Start copies from then on.
// Records in a log file are whole and start a line: what the other had read and not written is
// lost, and a line of which that was a part is ended.
//
// An end that is missing is closed: that of an input, because it was ended; others are lost.
func Adopt(cfg Config, ends map[string]*os.File) (_ *Streams, err error) {
	s := &Streams{log: cfg.Logger, cfg: cfg, drained: make(chan struct{})}
	if cfg.AwaitAttach {
		s.gate = newGate()
	}
	taken := map[string]bool{}
	take := func(name string) *os.File {
		taken[name] = true
		return ends[name]
	}
	defer func() {
		if err != nil {
			s.Close()
		}
		for name, f := range ends {
			if err != nil || !taken[name] {
				f.Close()
			}
		}
	}()
	s.console = take(endConsole)
	for _, o := range []struct{ stream, name string }{{"stdout", cfg.Stdout}, {"stderr", cfg.Stderr}} {
		if err := s.adoptOutput(o.stream, o.name, take); err != nil {
			return nil, err
		}
	}
	s.adoptInput(take)
	return s, nil
}

func (s *Streams) adoptOutput(stream, name string, take func(string) *os.File) error {
	src := take(stream)
	if s.cfg.Terminal {
		if stream != "stdout" {
			return nil
		}
		src = s.console
	}
	if src == nil {
		return nil
	}
	var to sink = discard{}
	switch path, isLog := strings.CutPrefix(name, Scheme); {
	case isLog && s.file == nil:
		file, err := adoptLog(path, s.cfg.Limits, s.log)
		if err != nil {
			s.log.Error("failed to open log file", "error", err) // the program must not block because of its log
			break
		}
		s.file = file
		fallthrough
	case isLog:
		to = s.tapped(stream, s.file.stream(stream))
	case name == Attachable:
		to = s.tapped(stream, discard{})
	default:
		if f := take(stream + endTo); f != nil {
			to = &fileSink{File: f, beside: take(stream + endHold)}
		}
	}
	s.outputs = append(s.outputs, newCopier(stream, src, to, false))
	return nil
}

func (s *Streams) adoptInput(take func(string) *os.File) {
	to, fifo := take(EndStdin), take(endFIFO)
	if s.cfg.Terminal {
		to = s.console
	}
	switch {
	case to == nil:
		if fifo != nil {
			fifo.Close()
		}
	case s.cfg.Stdin == Attachable:
		s.input = &input{file: to, terminal: s.cfg.Terminal, ends: s.cfg.InputEnds, copiers: map[*copier]struct{}{}}
	case fifo != nil:
		s.stdin = newCopier("stdin", fifo, &fileSink{File: to, keep: s.cfg.Terminal, ends: s.cfg.InputEnds}, true)
	case !s.cfg.Terminal:
		to.Close() // the caller has closed its end
	}
}

// adoptLog opens a log file whose writer has died, after mending its end.
func adoptLog(path string, limits Limits, log *slog.Logger) (*logFile, error) {
	if err := mend(path); err != nil {
		return nil, err
	}
	return openLog(path, limits, log)
}

// mend removes a record of which only a part was written, and ends lines of which only a part is
// there. It does nothing to what openLog refuses.
func mend(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // openLog says why
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("mend log file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	tail := make([]byte, min(info.Size(), 2*batchSize))
	start := info.Size() - int64(len(tail))
	if _, err := f.ReadAt(tail, start); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("mend log file: %w", err)
	}
	whole := tail[:bytes.LastIndexByte(tail, '\n')+1]
	if len(whole) < len(tail) && (len(whole) > 0 || start == 0) {
		if err := f.Truncate(start + int64(len(whole))); err != nil {
			return fmt.Errorf("mend log file: %w", err)
		}
	}
	var ends []byte
	for _, stream := range openLines(whole) {
		ends = appendRecord(ends, time.Now().UTC(), stream, tagFull, nil)
	}
	if _, err := f.WriteAt(ends, start+int64(len(whole))); err != nil {
		return fmt.Errorf("mend log file: %w", err)
	}
	return nil
}

// openLines names the streams whose last record says that the line continues. Its rest is what a
// dead writer had in its memory.
func openLines(records []byte) []string {
	last := map[string]byte{}
	for record := range bytes.Lines(records) {
		fields := bytes.SplitN(record, []byte(" "), 4)
		if len(fields) == 4 && len(fields[2]) == 1 {
			last[string(fields[1])] = fields[2][0]
		}
	}
	return slices.DeleteFunc([]string{"stdout", "stderr"}, func(stream string) bool { return last[stream] != tagPartial })
}
