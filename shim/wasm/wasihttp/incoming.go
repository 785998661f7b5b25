package wasihttp

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// errDiscard tells the reader of a body that only its trailers are wanted.
var errDiscard = errors.New("only the trailers are wanted")

// incoming is the body of a request or a response that arrives. Nothing is read of it before the
// guest asks; then a goroutine reads ahead, as much as the pipe holds.
type incoming struct {
	reader   io.Reader
	trailers func() http.Header // valid once the reader is at its end
	code     func(error) error  // the error-code of an error of the reader
	limit    int64              // of the body, in bytes, 0 = none
	over     func(error)        // called with the error-code when the body passes the limit
	release  func()             // the guest has given it up, nil = nothing is to be done
	held     int                // counted of the host's memory; a response's place bounds it

	pipe     *pipe.Pipe
	start    sync.Once
	begun    atomic.Bool   // it was read of
	done     chan struct{} // closed when nothing reads any more
	finished wasi.Event    // the end was reached: err and fields are valid
	err      error
	fields   *fields.Fields // the trailers, nil for none
}

func newIncoming(reader io.Reader, trailers func() http.Header, code func(error) error) *incoming {
	return &incoming{reader: reader, trailers: trailers, code: code, pipe: pipe.New(), done: make(chan struct{})}
}

// begin starts reading.
func (in *incoming) begin() {
	in.start.Do(func() {
		in.begun.Store(true)
		if in.reader == http.NoBody {
			in.finish(nil)
			return
		}
		go in.pump()
	})
}

// chunks are the buffers of pumps.
var chunks = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// pump reads the body, to its end unless the guest gives it up.
func (in *incoming) pump() {
	chunk := chunks.Get().(*[16 << 10]byte)
	defer chunks.Put(chunk)
	for total := int64(0); ; {
		n, err := in.reader.Read(chunk[:])
		if total += int64(n); in.limit > 0 && total > in.limit {
			err := sized(RequestBodySize, uint64(in.limit))
			in.over(err)
			in.finish(err)
			return
		}
		if n > 0 {
			if _, gone := in.pipe.Write(chunk[:n]); gone == pipe.ErrUnread {
				in.finish(code(ConnectionTerminated)) // for who asks in spite of that
				return
			}
		}
		switch {
		case err == io.EOF:
			in.finish(nil)
			return
		case err != nil:
			in.finish(in.code(err))
			return
		}
	}
}

// finish ends the body: completely, or with an error-code.
func (in *incoming) finish(err error) {
	end := io.EOF
	if in.err = err; err != nil {
		end = err
	} else if f := fields.Of(in.trailers()); f.Count() > 0 {
		in.fields = f
	}
	in.finished.Set() // before the end can be read: the response may follow at once, and settle asks
	in.pipe.CloseWrite(end)
	close(in.done)
}

// Held implements canonical.Sized, also of none.
func (in *incoming) Held() int {
	if in == nil {
		return 0
	}
	return in.held
}

// Drop gives the body up.
func (in *incoming) Drop() {
	in.pipe.CloseRead(pipe.ErrUnread)
	in.start.Do(func() { close(in.done) })
	if in.release != nil {
		in.release()
	}
}

// incomingBody is the resource of that name.
type incomingBody struct {
	*incoming
	stream bool // it was given out
}

// bodyReader is the input-stream of an incoming-body.
type bodyReader struct {
	of     *incoming
	buffer []byte
	closed bool // its end was told
}

// maxRead is how much one read of a guest's moves, in bytes.
const maxRead = 16 << 10

// WaitsFor is bytes in the pipe, or its end.
func (s *bodyReader) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: &s.of.pipe.Readable}, !s.closed
}

// Read is that of wasip2.InputStream.
func (s *bodyReader) Read(i *wasip2.Instance, n uint64, block bool) ([]byte, error) {
	if s.closed {
		return nil, wasip2.ErrClosed
	}
	if s.buffer == nil {
		s.buffer = make([]byte, maxRead)
	}
	for {
		got, err := s.of.pipe.TryRead(s.buffer[:min(n, maxRead)])
		switch {
		case err == io.EOF:
			s.closed = true
			return nil, wasip2.ErrClosed
		case err != nil:
			s.closed = true
			return nil, err
		case got > 0, !block, n == 0 && s.of.pipe.Readable.IsSet():
			return s.buffer[:got], nil
		}
		if err := i.Wait(wasi.Subscription{Event: &s.of.pipe.Readable}); err != nil {
			return nil, err
		}
	}
}

// Held implements canonical.Sized.
func (*bodyReader) Held() int { return maxRead }

// Drop leaves the rest where it is: the trailers may still be asked for.
func (*bodyReader) Drop() {}

// futureTrailers is the resource of that name.
type futureTrailers struct {
	*incoming
	taken bool
}

func (f *futureTrailers) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: &f.finished}, true
}

func bodyStream(c *canonical.Call, p []uint64, out uint32) error {
	b := canonical.Get[*incomingBody](c, p[0])
	if b.stream {
		return errOnce
	}
	b.stream = true
	b.begin()
	c.Put32(out, c.Add(&bodyReader{of: b.incoming}, uint32(p[0])))
	return nil
}

func bodyFinish(c *canonical.Call, p []uint64, _ uint32) error {
	b := canonical.Take[*incomingBody](c, p[0])
	b.pipe.CloseRead(errDiscard)
	b.begin()
	p[0] = uint64(c.Add(&futureTrailers{incoming: b.incoming}, 0))
	return nil
}

// Layout of option<result<result<T, error-code>>> for a T that is no larger than an error-code.
const (
	futureSize   = 16 + 8 + codeSize
	futureOuter  = 8
	futureInner  = 16
	futureResult = 24
)

// answerFuture writes what a future says before its value: not yet, already taken, or the error in
// its place. It reports whether the value is to be written.
func answerFuture(c *canonical.Call, out uint32, ready bool, taken *bool, failed *error) bool {
	c.PutBool(out, ready)
	if !ready {
		return false
	}
	c.PutBool(out+futureOuter, *taken)
	if *taken {
		return false
	}
	*taken = true
	c.PutBool(out+futureInner, *failed != nil)
	if *failed != nil {
		putCode(c, out+futureResult, *failed)
	}
	return *failed == nil
}

func trailersGet(c *canonical.Call, p []uint64, out uint32) error {
	f := canonical.Get[*futureTrailers](c, p[0])
	if !answerFuture(c, out, f.finished.IsSet(), &f.taken, &f.err) {
		return nil
	}
	c.PutBool(out+futureResult, f.fields != nil)
	if f.fields != nil {
		c.Put32(out+futureResult+4, c.Add(f.fields, 0))
	}
	return nil
}
