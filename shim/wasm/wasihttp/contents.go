package wasihttp

import (
	"fmt"
	"net/http"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
)

// ending is the element of the futures of wasi:http@0.3: result<option<trailers>, error-code> and
// result<_, error-code>, which have the same layout.
var ending = async.Element{Size: endingPayload + codeSize, Align: codeAlign}

const endingPayload = codeAlign

// contents are the body of a request or a response of WASI 0.3, before it is consumed or sent.
type contents struct {
	stream   *async.Readable // nil: a guest's that has no body
	trailers *async.Readable // resolves to an error, or to *fields.Fields, nil for none
	sent     *async.Promise  // of a guest's: how the sending ended
	held     int             // counted for what arrives
}

// contentsOf are what a guest gives for a new request or response, and the future that it gets for
// that.
func contentsOf(c *canonical.Call, some, stream, trailers uint64) (*contents, uint32) {
	b := &contents{sent: &async.Promise{}}
	if canonical.Discriminant(some, 2) == 1 {
		b.stream = async.TakeStream(c, stream)
	}
	b.trailers = async.TakeFuture(c, trailers, ending)
	return b, b.sent.Give(c, ending)
}

// drop is for contents that nobody wants.
func (b *contents) drop() {
	b.trailers.Close()
	if b.stream != nil {
		b.stream.Close()
	}
	if b.sent != nil {
		keepOutcome(b.sent, internal("it was dropped"))
	}
}

// consume gives the guest the body and its trailers. res is the future that tells how the guest got
// on with them, which is told to the guest that made them, if one did.
func (b *contents) consume(c *canonical.Call, res uint64, out uint32) {
	async.TakeFuture(c, res, ending).Receive(loadOutcome, func(value any, ok bool) {
		if err, _ := value.(error); ok && b.sent != nil {
			keepOutcome(b.sent, err)
		}
	})
	if b.stream == nil {
		b.stream = async.Of(c).Stream(&bodySource{of: newIncoming(http.NoBody, noTrailers, requestCode)})
	}
	c.Put32(out, b.stream.Give(c))
	c.Put32(out+4, b.trailers.Give(c))
}

func noTrailers() http.Header { return nil }

// keepOutcome resolves a result<_, error-code>.
func keepOutcome(p *async.Promise, err error) {
	p.KeepValue(err, func(c *canonical.Call, at uint32) {
		c.PutBool(at, err != nil)
		if err != nil {
			putCode(c, at+endingPayload, err)
		}
	})
}

// loadOutcome reads a result<_, error-code>: nil or an ErrorCode.
func loadOutcome(c *canonical.Call, at uint32) any {
	if canonical.Discriminant(uint64(c.View(at, 1)[0]), 2) == 1 {
		return loadCode(c, at+endingPayload)
	}
	return nil
}

// keepTrailers resolves a result<option<trailers>, error-code>.
func keepTrailers(p *async.Promise, trailers *fields.Fields, err error) {
	value := any(trailers)
	if err != nil {
		value = err
	}
	p.KeepValue(value, func(c *canonical.Call, at uint32) {
		c.PutBool(at, err != nil)
		switch at += endingPayload; {
		case err != nil:
			putCode(c, at, err)
		case trailers != nil:
			c.PutOption(at, trailers)
		default:
			c.PutBool(at, false)
		}
	})
}

// loadTrailers reads a result<option<trailers>, error-code>: nil, *fields.Fields or an ErrorCode.
func loadTrailers(c *canonical.Call, at uint32) any {
	if failed := loadOutcome(c, at); failed != nil {
		return failed
	}
	if b := c.View(at+endingPayload, 8); canonical.Discriminant(uint64(b[0]), 2) == 1 {
		return canonical.Take[*fields.Fields](c, word(b, 1))
	}
	return nil
}

// bodySource is the stream of a body that arrives.
type bodySource struct {
	of       *incoming
	trailers *async.Promise // nil for none
	closed   bool           // nobody reads the stream any more
	unwanted bool           // nor the trailers
}

// arriving are the contents of a message that arrives.
func arriving(t *async.Tasks, in *incoming) *contents {
	s := &bodySource{of: in, trailers: &async.Promise{Held: in.held, Arrives: true, Needs: "trailers come when the body's stream was read or dropped"}}
	s.trailers.Dropped = func() {
		if s.unwanted = true; s.closed {
			s.abandon()
		}
	}
	return &contents{stream: t.Stream(s), trailers: t.Future(s.trailers, ending), held: in.held}
}

// WaitsFor is bytes in the pipe, or its end.
func (s *bodySource) WaitsFor() (wasi.Subscription, bool) {
	s.of.begin()
	return wasi.Subscription{Event: &s.of.pipe.Readable}, true
}

// Held is counted with the guest's end of the stream.
func (s *bodySource) Held() int { return s.of.Held() }

// Read implements async.Source.
func (s *bodySource) Read(c *canonical.Call, at, n uint32) (uint32, error) {
	read, err := s.ReadBytes(c.View(at, uint64(n)))
	return uint32(read), err
}

// ReadBytes implements async.Bytes.
func (s *bodySource) ReadBytes(b []byte) (int, error) {
	s.of.begin()
	return s.of.pipe.TryRead(b)
}

// abandon gives the body up, and what it holds: the guest may still have a handle of its end.
func (s *bodySource) abandon() {
	s.of.Drop()
	s.of = nil
}

// Close leaves the rest where it is, if the trailers are still wanted.
func (s *bodySource) Close() {
	s.closed = true
	switch {
	case s.trailers == nil:
	case s.unwanted:
		s.abandon()
	default:
		s.of.pipe.CloseRead(errDiscard)
		s.of.begin()
		s.trailers.KeepWhen(async.Happening{Event: &s.of.finished}, func() { keepTrailers(s.trailers, s.of.fields, s.of.err) })
	}
}

// bodySink sends the body that a guest writes, and then its trailers.
type bodySink struct {
	to       *outgoing
	trailers *async.Readable
	broken   error // why it takes no more
}

// send has the host read the contents, which are of a message with these headers. wrong is what a
// body of another size than they announce is.
func (b *contents) send(headers *fields.Fields, wrong Case) (*outgoing, error) {
	to, err := newOutgoing(headers, wrong)
	if err != nil {
		return nil, code(ProtocolError)
	}
	if sent := b.sent; sent != nil {
		sent.KeepWhen(async.Happening{Event: &to.pipe.Settled}, func() { keepOutcome(sent, to.outcome()) })
	}
	s := &bodySink{to: to, trailers: b.trailers}
	if b.stream == nil {
		to.size = -1 // the size of what a response to HEAD would have, for instance
		s.Close()
	} else {
		b.stream.Drain(s)
	}
	return to, nil
}

// WaitsFor is room in the pipe.
func (s *bodySink) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: &s.to.pipe.Writable}, true
}

// Write implements async.Sink.
func (s *bodySink) Write(b []byte) (int, error) {
	if room := s.to.size - s.to.written; s.to.size >= 0 && int64(len(b)) > room {
		if room == 0 {
			s.to.written += int64(len(b))
			s.broken = sized(s.to.wrong, uint64(s.to.written))
			return 0, s.broken
		}
		b = b[:room]
	}
	n, err := s.to.pipe.TryWrite(b)
	if s.to.written += int64(n); err != nil {
		s.broken = code(ConnectionTerminated)
	}
	return n, err
}

// Close is the end of the body: its trailers follow. The guest's are read in any case, so that it
// can continue; those of a body that arrives only come when all of it has.
func (s *bodySink) Close() {
	if s.broken != nil && s.trailers.Own() {
		s.trailers.Close()
		s.fail(s.broken)
		return
	}
	s.trailers.Receive(loadTrailers, func(value any, ok bool) {
		var err error
		switch value := value.(type) {
		case error:
			err = value
		case *fields.Fields:
			err = s.to.finish(value)
		default:
			if err = errAborted; ok {
				err = s.to.finish(nil)
			}
		}
		if err != nil {
			s.fail(err)
		}
	})
}

func (s *bodySink) fail(err error) {
	s.to.failed = err
	s.to.pipe.CloseWrite(fmt.Errorf("%w: %w", errAborted, err))
}

// outcome is how the sending of the body ended, for the guest.
func (o *outgoing) outcome() error {
	switch {
	case o.pipe.Whole():
		return nil
	case o.failed != nil:
		return o.failed
	}
	return code(ConnectionTerminated)
}
