package wasip3

import (
	"io"
	"math"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// tcpState is a state of the specification's TCP sockets.
type tcpState uint8

const (
	tcpUnbound tcpState = iota
	tcpBound
	tcpListening
	tcpConnecting
	tcpConnected
	tcpClosed
)

// defaultBacklog is how many connections wait to be accepted where the guest does not say.
const defaultBacklog = 128

// tcpSocket is the resource of that name.
type tcpSocket struct {
	*shared
	state           tcpState
	backlog         int
	sends, receives bool // there was a stream
}

// Drop implements canonical.Resource.
func (s *tcpSocket) Drop() { s.release() }

// Sock implements wasip2.Socket.
func (s *tcpSocket) Sock() *wasi.Socket { return s.Socket }

func tcpCreate(c *canonical.Call, p []uint64, out uint32) error {
	s, err := newSocket(c, p[0], unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	c.Put32(out, c.Add(&tcpSocket{shared: s, backlog: defaultBacklog}, 0))
	return nil
}

func tcpBind(c *canonical.Call, p []uint64, _ uint32) error {
	s, to := canonical.Get[*tcpSocket](c, p[0]), readAddress(p[1:])
	if s.state != tcpUnbound {
		return codes.InvalidState
	}
	if err := address.Unicast(to.Addr(), s.Family()); err != nil {
		return err
	}
	// A port whose last connections the kernel still remembers is free.
	err := s.SetInt(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = s.Bind(to)
	}
	if err == nil {
		s.state = tcpBound
	}
	return err
}

// connecting is a connect that continues.
type connecting struct {
	async.Going
	of      *tcpSocket
	failure error // it failed at once
}

// WaitsFor implements async.Work.
func (o *connecting) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: &o.of.File, Write: true}, o.failure == nil
}

// Step implements canonical.Operation.
func (o *connecting) Step(*canonical.Call, uint32) (bool, error) {
	err := o.failure
	if err == nil {
		if !o.of.HasRoom() {
			return false, nil
		}
		err = o.of.Failure()
	}
	if o.of.state = tcpConnected; err != nil {
		o.of.state = tcpClosed
	}
	o.of.release()
	return true, codes.OfConnect(err)
}

// Cancel implements canonical.Operation.
func (o *connecting) Cancel() {
	o.of.state = tcpClosed
	o.of.release()
}

func tcpConnect(c *canonical.Call, p []uint64, _ uint32) error {
	s, to := canonical.Get[*tcpSocket](c, p[0]), readAddress(p[1:])
	if s.state != tcpUnbound && s.state != tcpBound {
		return codes.InvalidState
	}
	err := address.Unicast(to.Addr(), s.Family())
	if err == nil {
		err = address.Reachable(to)
	}
	if err != nil {
		return err
	}
	o := &connecting{of: s}
	if err := s.Connect(to); err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		o.failure = err
	}
	s.state = tcpConnecting
	s.use()
	return o
}

// connections is the stream of a listener's connections.
type connections struct{ of *shared }

// ownSocket is the element of that stream.
var ownSocket = async.Element{Size: 4, Align: 4}

func tcpListen(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if s.state != tcpUnbound && s.state != tcpBound {
		return codes.InvalidState
	}
	if err := s.Listen(s.backlog); err != nil {
		s.state = tcpClosed
		return err
	}
	s.state = tcpListening
	c.Put32(out, async.NewStream(c, ownSocket, connections{s.use()}))
	return nil
}

// WaitsFor implements async.Work.
func (l connections) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: &l.of.File}, true
}

// Read implements async.Source. A connection that fails before it is accepted is left out.
func (l connections) Read(c *canonical.Call, at, n uint32) (uint32, error) {
	for i := range n {
		socket, err := l.of.Accept(wasi.Nonblock)
		switch err {
		case nil:
			s := &tcpSocket{shared: &shared{Socket: socket, users: 1}, state: tcpConnected, backlog: defaultBacklog}
			c.Put32(at+i*ownSocket.Size, c.Add(s, 0))
		case unix.EINVAL, unix.ECANCELED: // the guest was asked to end: it is no listener any more
			return i, io.EOF
		default:
			return i, nil
		}
	}
	return n, nil
}

// Close implements async.Source.
func (l connections) Close() { l.of.release() }

// received is a stream of what a connection receives.
type received struct {
	of      *shared // nil if it cannot receive
	outcome *outcome
	failure error
}

func tcpReceive(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	r := &received{outcome: socketOutcome(), failure: codes.InvalidState}
	if s.state == tcpConnected && !s.receives {
		s.receives = true
		r.of, r.failure = s.use(), nil
	} else {
		r.outcome.keep(r.failure)
	}
	c.Put32(out, async.NewStream(c, async.Byte, r))
	c.Put32(out+4, r.outcome.give(c))
	return nil
}

// WaitsFor implements async.Work.
func (r *received) WaitsFor() (wasi.Subscription, bool) {
	if r.of == nil {
		return wasi.Subscription{}, false
	}
	return wasi.Subscription{File: &r.of.File}, true
}

// Read implements async.Source.
func (r *received) Read(c *canonical.Call, at, n uint32) (uint32, error) {
	read, err := r.ReadBytes(c.View(at, uint64(min(n, maxMove))))
	return uint32(read), err
}

// ReadBytes implements async.Bytes.
func (r *received) ReadBytes(b []byte) (int, error) {
	if r.failure != nil {
		return 0, r.failure
	}
	n, _, err := r.of.Receive(wasi.Buffers{}.Add(b), 0)
	switch {
	case err == unix.EAGAIN:
		return 0, nil
	case err != nil:
		r.failure = err
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Close implements async.Source.
func (r *received) Close() {
	r.outcome.keep(r.failure)
	if r.of != nil {
		_ = r.of.Shutdown(unix.SHUT_RD) // the other end may be gone
		r.of.release()
	}
}

// sent is a stream of what a connection sends.
type sent struct {
	of      *shared // nil if it cannot send
	outcome *outcome
	failure error
}

func tcpSend(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	o := &sent{outcome: socketOutcome(), failure: codes.InvalidState}
	if s.state == tcpConnected && !s.sends {
		s.sends = true
		o.of, o.failure = s.use(), nil
	} else {
		o.outcome.keep(o.failure)
	}
	async.Drain(c, p[1], o)
	p[0] = uint64(o.outcome.give(c))
	return nil
}

// WaitsFor implements async.Work.
func (o *sent) WaitsFor() (wasi.Subscription, bool) {
	if o.of == nil {
		return wasi.Subscription{}, false
	}
	return wasi.Subscription{File: &o.of.File, Write: true}, true
}

// Write implements async.Sink.
func (o *sent) Write(b []byte) (int, error) {
	if o.failure != nil {
		return 0, o.failure
	}
	n, err := o.of.Send(wasi.Buffers{}.Add(b[:min(len(b), maxMove)]))
	if err == unix.EAGAIN || err != nil && n > 0 {
		return n, nil // the next one tells
	}
	o.failure = err
	return n, err
}

// Close implements async.Sink. The other end is told that nothing follows.
func (o *sent) Close() {
	o.outcome.keep(o.failure)
	if o.of != nil {
		_ = o.of.Shutdown(unix.SHUT_WR) // the other end may be gone
		o.of.release()
	}
}

func tcpLocal(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	return answerAddress(c, out, s.state != tcpUnbound && s.state != tcpClosed, s.LocalAddr)
}

func tcpRemote(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	return answerAddress(c, out, s.state == tcpConnected, s.PeerAddr)
}

func tcpIsListening(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if p[0] = 0; s.state == tcpListening {
		p[0] = 1
	}
	return nil
}

func tcpSetBacklog(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if p[1] == 0 {
		return codes.InvalidArgument
	}
	backlog := int(min(p[1], math.MaxInt32))
	switch s.state {
	case tcpUnbound, tcpBound:
	case tcpListening:
		if err := s.Listen(backlog); err != nil {
			return err
		}
	default:
		return codes.InvalidState
	}
	s.backlog = backlog
	return nil
}

func tcpFunctions() []canonical.Function {
	const m = "[method]tcp-socket."
	where := socketCode(address.Size, address.Align)
	return append([]canonical.Function{
		{Name: "[static]tcp-socket.create", Params: "ii", Answer: socketCode(4, 4), Call: tcpCreate},
		{Name: m + "bind", Params: "i" + flat + "i", Answer: socketCode(0, 1), Call: tcpBind},
		{Name: m + "connect", Params: "i" + flat + "i", Async: true, Spill: "i" + spilled, Answer: socketCode(0, 1), Call: tcpConnect},
		{Name: m + "listen", Params: "ii", Answer: socketCode(4, 4), Call: tcpListen},
		{Name: m + "send", Params: "ii", Results: "i", Call: tcpSend},
		{Name: m + "receive", Params: "ii", Answer: canonical.Pointer, Call: tcpReceive},
		{Name: m + "get-local-address", Params: "ii", Answer: where, Call: tcpLocal},
		{Name: m + "get-remote-address", Params: "ii", Answer: where, Call: tcpRemote},
		{Name: m + "get-is-listening", Params: "i", Results: "i", Call: tcpIsListening},
		{Name: m + "set-listen-backlog-size", Params: "iIi", Answer: socketCode(0, 1), Call: tcpSetBacklog},
		{Name: "[resource-drop]tcp-socket", Params: "i", Call: canonical.Drop[*tcpSocket]},
	}, options(wasip2.TCPOptions[*tcpSocket](), m)...)
}

// options are functions of options with the error-code of WASI 0.3.
func options(all []wasip2.Option, prefix string) []canonical.Function {
	var functions []canonical.Function
	for _, o := range all {
		f := canonical.Function{Name: prefix + o.Name, Params: o.Params, Results: o.Results, Call: o.Call}
		if o.Results == "" {
			f.Answer = socketCode(o.Size, max(o.Size, 1))
		}
		functions = append(functions, f)
	}
	return functions
}
