package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// Schemes of log addresses that containerd's clients give instead of FIFOs.
const (
	schemeFIFO    = "fifo://"      // a FIFO, as without a scheme
	schemeFile    = "file://"      // a file that is appended to
	schemeBinary  = "binary://"    // a program that takes both outputs from its descriptors 3 and 4, and closes 5 when it is ready
	schemeBinary2 = "binary-v2://" // the same, but it writes a byte to 5 first: one that only ends has failed
)

// Program is a running program that takes output.
type Program interface {
	Done() <-chan struct{} // closed at its end
	Signal(sig syscall.Signal) error
}

// How long a program that takes output may take to end after its input, and after SIGTERM.
const (
	loggerTime = 10 * time.Second
	loggerTerm = 2 * time.Second
)

// openFile opens a log file and the folders it lies in.
func openFile(path string) (sink, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &fileSink{File: f}, nil
}

// logger is a program that takes the outputs of one process.
type logger struct {
	name    string
	outputs map[string]*os.File // our ends, by stream, until they are taken
	program Program
}

// startLogger starts the program that an address names and waits until it is ready.
func startLogger(ctx context.Context, name string, cfg Config) (_ *logger, err error) {
	cmd, err := loggerCommand(name, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Run == nil {
		return nil, fmt.Errorf("log address %q: logging programs are not supported: %w", name, errdefs.ErrNotImplemented)
	}
	l := &logger{name: name, outputs: make(map[string]*os.File)}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			l.close()
		}
	}()
	for _, stream := range []string{"stdout", "stderr"} {
		their, ours, err := pipe(true)
		if err != nil {
			return nil, err
		}
		theirs, l.outputs[stream] = append(theirs, their), ours
	}
	ready, theirReady, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	theirs = append(theirs, theirReady)
	cmd.ExtraFiles = theirs
	if l.program, err = cfg.Run(cmd); err != nil {
		return nil, fmt.Errorf("start logging program: %w", err)
	}
	theirReady.Close()
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := ready.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("wait for logging program: %w", errors.Join(err, ctx.Err()))
	}
	if n == 0 && strings.HasPrefix(name, schemeBinary2) {
		return nil, fmt.Errorf("logging program %q ended before it was ready: %w", cmd.Path, errdefs.ErrFailedPrecondition)
	}
	return l, nil
}

// loggerCommand is the command of an address: its query names the arguments, in order.
func loggerCommand(name string, cfg Config) (*exec.Cmd, error) {
	u, err := url.Parse(name)
	if err != nil || !filepath.IsAbs(u.Path) {
		return nil, fmt.Errorf("log address %q: it names no program: %w", name, errdefs.ErrInvalidArgument)
	}
	cmd := exec.Command(u.Path)
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		for part := range strings.SplitSeq(pair, "=") {
			if part, err = url.QueryUnescape(part); err != nil {
				return nil, fmt.Errorf("log address %q: %w: %w", name, err, errdefs.ErrInvalidArgument)
			}
			if part != "" {
				cmd.Args = append(cmd.Args, part)
			}
		}
	}
	cmd.Env = []string{"CONTAINER_ID=" + cfg.ID, "CONTAINER_NAMESPACE=" + cfg.Namespace}
	return cmd, nil
}

// take gives the sink of one stream away.
func (l *logger) take(stream string) sink {
	f := l.outputs[stream]
	delete(l.outputs, stream)
	return &fileSink{File: f}
}

// close ends the input that was not used and waits for the program's end, in the end without its
// consent.
func (l *logger) close() {
	for _, f := range l.outputs {
		f.Close()
	}
	if l.program == nil {
		return
	}
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{0, loggerTime}, {syscall.SIGTERM, loggerTerm}, {syscall.SIGKILL, loggerTerm}} {
		if step.signal != 0 {
			_ = l.program.Signal(step.signal) // it may just have ended
		}
		select {
		case <-l.program.Done():
			return
		case <-time.After(step.wait):
		}
	}
}
