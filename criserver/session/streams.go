package session

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// Streams are a client's ends of an interactive session. Those that the client does not want are
// nil.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	TTY            bool // of an execution; a container has a terminal or not since it was made
	// NextSize waits for the next size of the client's terminal, in characters. It may be nil.
	// After false it is not called any more.
	NextSize func() (width, height uint16, ok bool)
}

// session moves bytes between a client and a shim. Life story: openSession makes the FIFOs; their
// names are given to the shim, which opens them; copy copies; close ends what is left.
type session struct {
	client Streams
	stdin  *fifo
	stdout *outlet
	stderr *outlet

	stdinDone chan struct{} // closed when the client's input has ended
	outDone   chan struct{} // closed when all outputs have
}

func openSession(dir, name string, client Streams) (_ *session, err error) {
	s := &session{client: client, stdinDone: make(chan struct{}), outDone: make(chan struct{})}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	path := func(stream string) string { return filepath.Join(dir, name+"-"+stream) }
	if client.Stdin != nil {
		if s.stdin, err = newFIFO(path("stdin"), true); err != nil {
			return nil, err
		}
	}
	if s.stdout, err = newOutlet(path("stdout"), client.Stdout); err != nil {
		return nil, err
	}
	s.stderr, err = newOutlet(path("stderr"), client.Stderr)
	return s, err
}

// names are the FIFOs' paths, each after a prefix for outputs; "" for streams that are not wanted.
func (s *session) names(prefix string) (stdin, stdout, stderr string) {
	if s.stdin != nil {
		stdin = s.stdin.path
	}
	if s.stdout != nil {
		stdout = prefix + s.stdout.path
	}
	if s.stderr != nil {
		stderr = prefix + s.stderr.path
	}
	return stdin, stdout, stderr
}

func (s *session) outlets() []*outlet {
	return slices.DeleteFunc([]*outlet{s.stdout, s.stderr}, func(o *outlet) bool { return o == nil })
}

// taken is called when the shim has opened what it wants of the FIFOs.
func (s *session) taken() {
	if s.stdin != nil {
		s.stdin.taken()
	}
	for _, o := range s.outlets() {
		o.taken()
	}
}

// copy copies until the streams end, and gives sizes of the terminal to resize, if it is not nil.
func (s *session) copy(resize func(width, height uint16)) {
	go s.input()
	go func() {
		for _, o := range s.outlets() {
			go o.copy()
		}
		for _, o := range s.outlets() {
			<-o.done
		}
		close(s.outDone)
	}()
	if s.client.NextSize == nil {
		return
	}
	go func() { // sizes are taken in any case: the connection may stand still otherwise
		for {
			width, height, ok := s.client.NextSize()
			if !ok {
				return
			}
			if resize != nil {
				resize(width, height)
			}
		}
	}()
}

// input passes the client's input on to its end, which ends the other side's.
func (s *session) input() {
	if s.stdin == nil {
		return
	}
	_, err := io.Copy(s.stdin.file, s.client.Stdin)
	s.stdin.file.Close()
	if err != nil { // the process does not read: drain the client, or the connection stalls
		_, _ = io.Copy(io.Discard, s.client.Stdin)
	}
	close(s.stdinDone)
}

// drain waits until the client has all output, after what wrote it has ended. Somebody else may
// hold the other ends open: after a while of silence it is over.
func (s *session) drain(ctx context.Context) {
	for _, o := range s.outlets() {
		o.end()
	}
	select {
	case <-s.outDone:
	case <-ctx.Done():
	}
}

func (s *session) close() {
	if s.stdin != nil {
		s.stdin.remove()
	}
	for _, o := range s.outlets() {
		o.remove()
	}
}

// outlet copies one output to the client.
type outlet struct {
	*fifo
	to    io.Writer
	done  chan struct{}
	ended atomic.Bool
}

func newOutlet(path string, to io.Writer) (*outlet, error) {
	if to == nil {
		return nil, nil
	}
	f, err := newFIFO(path, false)
	if err != nil {
		return nil, err
	}
	return &outlet{fifo: f, to: to, done: make(chan struct{})}, nil
}

const sessionChunk = 32 << 10

// copy ends with the output, with the client, or after drainLimit of silence once end was called.
func (o *outlet) copy() {
	defer close(o.done)
	defer o.file.Close() // the writer sees that there is no reader
	buf := make([]byte, sessionChunk)
	for {
		if o.ended.Load() {
			_ = o.file.SetReadDeadline(time.Now().Add(drainLimit))
		}
		n, err := o.file.Read(buf)
		if n > 0 {
			if _, werr := o.to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (o *outlet) end() {
	o.ended.Store(true)
	_ = o.file.SetReadDeadline(time.Now().Add(drainLimit))
}
