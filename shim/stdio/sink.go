package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/errdefs"
)

// sink takes what a copier reads. Write keeps nothing of p. Close comes once, after the last Write.
type sink interface {
	io.Writer
	io.Closer
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// fileSink is a pipe or pty as a sink, with what has to stay open as long as it.
type fileSink struct {
	*os.File
	beside *os.File
	keep   bool   // not ours to close
	ends   func() // called before it is closed; may be nil
}

func (f *fileSink) Close() error {
	var err error
	if !f.keep {
		if f.ends != nil {
			f.ends()
		}
		err = f.File.Close()
	}
	if f.beside != nil {
		err = errors.Join(err, f.beside.Close())
	}
	return err
}

// sink opens where a stream goes, nil to discard it.
func (s *Streams) sink(ctx context.Context, name, stream string) (sink, error) {
	path, isLog := strings.CutPrefix(name, Scheme)
	switch {
	case name == "":
		return nil, nil
	case name == Attachable:
		return s.tapped(stream, discard{}), nil
	case strings.HasPrefix(name, Loose):
		return openFIFOWriter(ctx, strings.TrimPrefix(name, Loose), false)
	case strings.HasPrefix(name, schemeFile):
		return openFile(strings.TrimPrefix(name, schemeFile))
	case strings.HasPrefix(name, schemeBinary), strings.HasPrefix(name, schemeBinary2):
		return s.logged(ctx, name, stream)
	case !isLog:
		return openFIFOWriter(ctx, strings.TrimPrefix(path, schemeFIFO), true)
	case s.file != nil && s.file.path != path:
		return nil, fmt.Errorf("log file %q: stdout and stderr go to one file: %w", path, errdefs.ErrInvalidArgument)
	case s.file == nil:
		file, err := openLog(path, s.cfg.Limits, s.log)
		if err != nil {
			return nil, err
		}
		s.file = file
	}
	return s.tapped(stream, s.file.stream(stream)), nil
}

// logged is the sink of a stream that a program takes: one program takes both.
func (s *Streams) logged(ctx context.Context, name, stream string) (sink, error) {
	if s.logger == nil {
		l, err := startLogger(ctx, name, s.cfg)
		if err != nil {
			return nil, err
		}
		s.logger = l
	}
	if s.logger.name != name {
		return nil, fmt.Errorf("log address %q: stdout and stderr go to one program: %w", name, errdefs.ErrInvalidArgument)
	}
	return s.logger.take(stream), nil
}

func (s *Streams) tapped(stream string, to sink) sink {
	if s.taps == nil {
		s.taps = map[string]*tap{}
	}
	t := &tap{sink: to}
	s.taps[stream] = t
	return t
}
