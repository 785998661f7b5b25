package wasip2

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// tcpState is a state of the specification's "Operational semantics of WASI TCP sockets".
type tcpState uint8

const (
	tcpUnbound tcpState = iota
	tcpBinding
	tcpBound
	tcpStartingToListen
	tcpListening
	tcpConnecting
	tcpConnected
	tcpClosed
)

// listens says whether connections arrive: they do as soon as listening was started.
func (s tcpState) listens() bool { return s == tcpStartingToListen || s == tcpListening }

// inProgress says whether an operation was started and not finished.
func (s tcpState) inProgress() bool {
	return s == tcpBinding || s == tcpStartingToListen || s == tcpConnecting
}

// wrong is the error of a function that starts an operation and is not for this state.
func (s tcpState) wrong() error {
	if s.inProgress() {
		return codes.ConcurrencyConflict
	}
	return codes.InvalidState
}

// defaultBacklog is how many connections wait to be accepted where the guest does not say.
const defaultBacklog = 128

// tcpSocket is the resource of that name. Its streams have the open file too: it is closed with the
// last of them.
type tcpSocket struct {
	node    *node
	socket  *wasi.Socket
	state   tcpState
	backlog int
	failure error   // of a connect that failed at once
	in      *input  // of a connection
	out     *output // of a connection
}

func (s *tcpSocket) Drop()              { s.node.release() }
func (s *tcpSocket) Sock() *wasi.Socket { return s.socket }

// WaitsFor is the end of the operation in progress, or a connection.
func (s *tcpSocket) WaitsFor() (wasi.Subscription, bool) {
	switch s.state {
	case tcpConnecting:
		return wasi.Subscription{File: s.node.file, Write: true}, s.failure == nil
	case tcpListening:
		return wasi.Subscription{File: s.node.file}, true
	}
	return wasi.Subscription{}, false
}

func newTCP(socket *wasi.Socket, state tcpState) *tcpSocket {
	return &tcpSocket{node: &node{file: &socket.File, users: 1}, socket: socket, state: state, backlog: defaultBacklog}
}

// streams gives the guest the two streams of a connection, as children of its socket.
func (s *tcpSocket) streams(i *Instance, parent uint32) (in, out uint32) {
	s.in, s.out = &input{node: s.node.use()}, newOutput(s.node, Place{})
	return i.abi.Add(s.in, parent), i.abi.Add(NewOutputStream(s.out), parent)
}

func createTCP(c *canonical.Call, p []uint64, out uint32) error {
	socket, err := Of(c).NewSocket(address.Family(canonical.Discriminant(p[0], 2)), unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	c.Put32(out, c.Add(newTCP(socket, tcpUnbound), 0))
	return nil
}

func tcpStartBind(c *canonical.Call, p []uint64, _ uint32) error {
	s, to := canonical.Get[*tcpSocket](c, p[0]), readAddress(c, p[2:])
	canonical.Get[*network](c, p[1])
	if s.state != tcpUnbound {
		return s.state.wrong()
	}
	if err := address.Unicast(to.Addr(), s.socket.Family()); err != nil {
		return err
	}
	// A port whose last connections the kernel still remembers is free.
	err := s.socket.SetInt(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = s.socket.Bind(to)
	}
	if err != nil {
		return codes.OfSocket(err)
	}
	s.state = tcpBinding
	return nil
}

// finish ends an operation that was done when it was started.
func (s *tcpSocket) finish(from, to tcpState) error {
	if s.state != from {
		return codes.NotInProgress
	}
	s.state = to
	return nil
}

func tcpFinishBind(c *canonical.Call, p []uint64, _ uint32) error {
	return canonical.Get[*tcpSocket](c, p[0]).finish(tcpBinding, tcpBound)
}

func tcpStartConnect(c *canonical.Call, p []uint64, _ uint32) error {
	s, to := canonical.Get[*tcpSocket](c, p[0]), readAddress(c, p[2:])
	canonical.Get[*network](c, p[1])
	if s.state != tcpUnbound && s.state != tcpBound {
		return s.state.wrong()
	}
	err := address.Unicast(to.Addr(), s.socket.Family())
	if err == nil {
		err = address.Reachable(to)
	}
	if err != nil {
		return err
	}
	if err := s.socket.Connect(to); err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		s.failure = err // told when the guest asks how it ended
	}
	s.state = tcpConnecting
	return nil
}

func tcpFinishConnect(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if s.state != tcpConnecting {
		return codes.NotInProgress
	}
	err := s.failure
	if err == nil {
		if !s.socket.HasRoom() {
			return codes.WouldBlock
		}
		err = s.socket.Failure()
	}
	if err == nil {
		err = s.socket.SetFlags(0) // what its streams write waits; what they read says whether it does
	}
	if err != nil {
		s.state = tcpClosed
		return codes.OfConnect(err)
	}
	s.state = tcpConnected
	in, stream := s.streams(Of(c), uint32(p[0]))
	c.Put32(out, in)
	c.Put32(out+4, stream)
	return nil
}

func tcpStartListen(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if s.state != tcpBound {
		return s.state.wrong()
	}
	if err := s.socket.Listen(s.backlog); err != nil {
		s.state = tcpClosed
		return codes.OfSocket(err)
	}
	s.state = tcpStartingToListen
	return nil
}

func tcpFinishListen(c *canonical.Call, p []uint64, _ uint32) error {
	return canonical.Get[*tcpSocket](c, p[0]).finish(tcpStartingToListen, tcpListening)
}

func tcpAccept(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if !s.state.listens() {
		return codes.InvalidState
	}
	socket, err := s.socket.Accept(0)
	switch err {
	case nil:
	case unix.EINVAL, unix.ECANCELED: // the guest was asked to end: it is no listener any more
		return codes.InvalidState
	default:
		return codes.OfSocket(err)
	}
	conn := newTCP(socket, tcpConnected)
	handle := c.Add(conn, 0)
	in, stream := conn.streams(Of(c), handle)
	c.Put32(out, handle)
	c.Put32(out+4, in)
	c.Put32(out+8, stream)
	return nil
}

func tcpLocalAddress(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if s.state == tcpUnbound || s.state == tcpClosed {
		return codes.InvalidState
	}
	a, err := s.socket.LocalAddr()
	if err == nil {
		putAddress(c, out, a)
	}
	return codes.OfSocket(err)
}

func tcpRemoteAddress(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if s.state != tcpConnected {
		return codes.InvalidState
	}
	a, err := s.socket.PeerAddr()
	if err == nil {
		putAddress(c, out, a)
	}
	return codes.OfSocket(err)
}

func tcpIsListening(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*tcpSocket](c, p[0])
	if p[0] = 0; s.state.listens() {
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
	case tcpUnbound, tcpBinding, tcpBound:
	case tcpStartingToListen, tcpListening:
		if err := s.socket.Listen(backlog); err != nil {
			return codes.OfSocket(err)
		}
	default:
		return codes.InvalidState
	}
	s.backlog = backlog
	return nil
}

// Cases of shutdown-type: they have the kernel's numbers.
const (
	shutdownReceive = unix.SHUT_RD
	shutdownSend    = unix.SHUT_WR
)

func tcpShutdown(c *canonical.Call, p []uint64, _ uint32) error {
	s, how := canonical.Get[*tcpSocket](c, p[0]), int(canonical.Discriminant(p[1], 3))
	if s.state != tcpConnected {
		return codes.InvalidState
	}
	if err := s.socket.Shutdown(how); err != nil && err != unix.ENOTCONN { // the other end may be gone
		return codes.OfSocket(err)
	}
	if how != shutdownSend {
		s.in.closed = true
	}
	if how != shutdownReceive {
		s.out.closed = true
	}
	return nil
}

// flat are the flat parameters of a network or an option, and an ip-socket-address: 13 of them.
const flat = "iiiiiiiiiiiii"

var tcpFunctions = []canonical.Function{
	{Name: "[method]tcp-socket.start-bind", Params: "i" + flat + "i", Answer: fails, Call: tcpStartBind},
	{Name: "[method]tcp-socket.finish-bind", Params: "ii", Answer: fails, Call: tcpFinishBind},
	{Name: "[method]tcp-socket.start-connect", Params: "i" + flat + "i", Answer: fails, Call: tcpStartConnect},
	{Name: "[method]tcp-socket.finish-connect", Params: "ii", Answer: code8(8, 4), Call: tcpFinishConnect},
	{Name: "[method]tcp-socket.start-listen", Params: "ii", Answer: fails, Call: tcpStartListen},
	{Name: "[method]tcp-socket.finish-listen", Params: "ii", Answer: fails, Call: tcpFinishListen},
	{Name: "[method]tcp-socket.accept", Params: "ii", Answer: code8(12, 4), Call: tcpAccept},
	{Name: "[method]tcp-socket.local-address", Params: "ii", Answer: code8(address.Size, address.Align), Call: tcpLocalAddress},
	{Name: "[method]tcp-socket.remote-address", Params: "ii", Answer: code8(address.Size, address.Align), Call: tcpRemoteAddress},
	{Name: "[method]tcp-socket.is-listening", Params: "i", Results: "i", Call: tcpIsListening},
	{Name: "[method]tcp-socket.address-family", Params: "i", Results: "i", Call: addressFamily[*tcpSocket]},
	{Name: "[method]tcp-socket.set-listen-backlog-size", Params: "iIi", Answer: fails, Call: tcpSetBacklog},
	{Name: "[method]tcp-socket.keep-alive-enabled", Params: "ii", Answer: fails, Call: getKeepAlive[*tcpSocket]},
	{Name: "[method]tcp-socket.set-keep-alive-enabled", Params: "iii", Answer: fails, Call: setKeepAlive[*tcpSocket]},
	{Name: "[method]tcp-socket.keep-alive-idle-time", Params: "ii", Answer: code8(8, 8), Call: getSeconds[*tcpSocket](keepAliveIdle)},
	{Name: "[method]tcp-socket.set-keep-alive-idle-time", Params: "iIi", Answer: fails, Call: setSeconds[*tcpSocket](keepAliveIdle)},
	{Name: "[method]tcp-socket.keep-alive-interval", Params: "ii", Answer: code8(8, 8), Call: getSeconds[*tcpSocket](keepAliveInterval)},
	{Name: "[method]tcp-socket.set-keep-alive-interval", Params: "iIi", Answer: fails, Call: setSeconds[*tcpSocket](keepAliveInterval)},
	{Name: "[method]tcp-socket.keep-alive-count", Params: "ii", Answer: code8(4, 4), Call: getCount[*tcpSocket]},
	{Name: "[method]tcp-socket.set-keep-alive-count", Params: "iii", Answer: fails, Call: setCount[*tcpSocket]},
	{Name: "[method]tcp-socket.hop-limit", Params: "ii", Answer: fails, Call: getHops[*tcpSocket]},
	{Name: "[method]tcp-socket.set-hop-limit", Params: "iii", Answer: fails, Call: setHops[*tcpSocket]},
	{Name: "[method]tcp-socket.receive-buffer-size", Params: "ii", Answer: code8(8, 8), Call: getBuffer[*tcpSocket](receiveBuffer)},
	{Name: "[method]tcp-socket.set-receive-buffer-size", Params: "iIi", Answer: fails, Call: setBuffer[*tcpSocket](receiveBuffer)},
	{Name: "[method]tcp-socket.send-buffer-size", Params: "ii", Answer: code8(8, 8), Call: getBuffer[*tcpSocket](sendBuffer)},
	{Name: "[method]tcp-socket.set-send-buffer-size", Params: "iIi", Answer: fails, Call: setBuffer[*tcpSocket](sendBuffer)},
	{Name: "[method]tcp-socket.subscribe", Params: "i", Results: "i", Call: Subscribe[*tcpSocket]},
	{Name: "[method]tcp-socket.shutdown", Params: "iii", Answer: fails, Call: tcpShutdown},
	{Name: "[resource-drop]tcp-socket", Params: "i", Call: canonical.Drop[*tcpSocket]},
}
