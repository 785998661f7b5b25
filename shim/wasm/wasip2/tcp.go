package wasip2

import (
	"math"

	"golang.org/x/sys/unix"

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

func (s *tcpSocket) drop()              { s.node.release() }
func (s *tcpSocket) sock() *wasi.Socket { return s.socket }

// waitsFor is the end of the operation in progress, or a connection.
func (s *tcpSocket) waitsFor() (wasi.Subscription, bool) {
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
func (s *tcpSocket) streams(h *Host, parent uint32) (in, out uint32) {
	s.in, s.out = &input{node: s.node.use()}, newOutput(s.node, asOpened, 0)
	return h.handles.add(s.in, parent), h.handles.add(s.out, parent)
}

func createTCP(c *call, p []uint64, out uint32) error {
	socket, err := c.host.newSocket(address.Family(discriminant(p[0], 2)), unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	c.put32(out, c.host.handles.add(newTCP(socket, tcpUnbound), 0))
	return nil
}

func tcpStartBind(c *call, p []uint64, _ uint32) error {
	s, to := get[*tcpSocket](c.host, p[0]), c.address(p[2:])
	get[*network](c.host, p[1])
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

func tcpFinishBind(c *call, p []uint64, _ uint32) error {
	return get[*tcpSocket](c.host, p[0]).finish(tcpBinding, tcpBound)
}

func tcpStartConnect(c *call, p []uint64, _ uint32) error {
	s, to := get[*tcpSocket](c.host, p[0]), c.address(p[2:])
	get[*network](c.host, p[1])
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

func tcpFinishConnect(c *call, p []uint64, out uint32) error {
	s := get[*tcpSocket](c.host, p[0])
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
	in, stream := s.streams(c.host, uint32(p[0]))
	c.put32(out, in)
	c.put32(out+4, stream)
	return nil
}

func tcpStartListen(c *call, p []uint64, _ uint32) error {
	s := get[*tcpSocket](c.host, p[0])
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

func tcpFinishListen(c *call, p []uint64, _ uint32) error {
	return get[*tcpSocket](c.host, p[0]).finish(tcpStartingToListen, tcpListening)
}

func tcpAccept(c *call, p []uint64, out uint32) error {
	s := get[*tcpSocket](c.host, p[0])
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
	handle := c.host.handles.add(conn, 0)
	in, stream := conn.streams(c.host, handle)
	c.put32(out, handle)
	c.put32(out+4, in)
	c.put32(out+8, stream)
	return nil
}

func tcpLocalAddress(c *call, p []uint64, out uint32) error {
	s := get[*tcpSocket](c.host, p[0])
	if s.state == tcpUnbound || s.state == tcpClosed {
		return codes.InvalidState
	}
	a, err := s.socket.LocalAddr()
	if err == nil {
		c.putAddress(out, a)
	}
	return codes.OfSocket(err)
}

func tcpRemoteAddress(c *call, p []uint64, out uint32) error {
	s := get[*tcpSocket](c.host, p[0])
	if s.state != tcpConnected {
		return codes.InvalidState
	}
	a, err := s.socket.PeerAddr()
	if err == nil {
		c.putAddress(out, a)
	}
	return codes.OfSocket(err)
}

func tcpIsListening(c *call, p []uint64, _ uint32) error {
	s := get[*tcpSocket](c.host, p[0])
	if p[0] = 0; s.state.listens() {
		p[0] = 1
	}
	return nil
}

func tcpSetBacklog(c *call, p []uint64, _ uint32) error {
	s := get[*tcpSocket](c.host, p[0])
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

func tcpShutdown(c *call, p []uint64, _ uint32) error {
	s, how := get[*tcpSocket](c.host, p[0]), int(discriminant(p[1], 3))
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

var tcpFunctions = []function{
	{name: "[method]tcp-socket.start-bind", params: "i" + flat + "i", answer: fails, call: tcpStartBind},
	{name: "[method]tcp-socket.finish-bind", params: "ii", answer: fails, call: tcpFinishBind},
	{name: "[method]tcp-socket.start-connect", params: "i" + flat + "i", answer: fails, call: tcpStartConnect},
	{name: "[method]tcp-socket.finish-connect", params: "ii", answer: code8(8, 4), call: tcpFinishConnect},
	{name: "[method]tcp-socket.start-listen", params: "ii", answer: fails, call: tcpStartListen},
	{name: "[method]tcp-socket.finish-listen", params: "ii", answer: fails, call: tcpFinishListen},
	{name: "[method]tcp-socket.accept", params: "ii", answer: code8(12, 4), call: tcpAccept},
	{name: "[method]tcp-socket.local-address", params: "ii", answer: code8(address.Size, address.Align), call: tcpLocalAddress},
	{name: "[method]tcp-socket.remote-address", params: "ii", answer: code8(address.Size, address.Align), call: tcpRemoteAddress},
	{name: "[method]tcp-socket.is-listening", params: "i", results: "i", call: tcpIsListening},
	{name: "[method]tcp-socket.address-family", params: "i", results: "i", call: addressFamily[*tcpSocket]},
	{name: "[method]tcp-socket.set-listen-backlog-size", params: "iIi", answer: fails, call: tcpSetBacklog},
	{name: "[method]tcp-socket.keep-alive-enabled", params: "ii", answer: fails, call: getKeepAlive},
	{name: "[method]tcp-socket.set-keep-alive-enabled", params: "iii", answer: fails, call: setKeepAlive},
	{name: "[method]tcp-socket.keep-alive-idle-time", params: "ii", answer: code8(8, 8), call: getSeconds(keepAliveIdle)},
	{name: "[method]tcp-socket.set-keep-alive-idle-time", params: "iIi", answer: fails, call: setSeconds(keepAliveIdle)},
	{name: "[method]tcp-socket.keep-alive-interval", params: "ii", answer: code8(8, 8), call: getSeconds(keepAliveInterval)},
	{name: "[method]tcp-socket.set-keep-alive-interval", params: "iIi", answer: fails, call: setSeconds(keepAliveInterval)},
	{name: "[method]tcp-socket.keep-alive-count", params: "ii", answer: code8(4, 4), call: getCount},
	{name: "[method]tcp-socket.set-keep-alive-count", params: "iii", answer: fails, call: setCount},
	{name: "[method]tcp-socket.hop-limit", params: "ii", answer: fails, call: getHops[*tcpSocket]},
	{name: "[method]tcp-socket.set-hop-limit", params: "iii", answer: fails, call: setHops[*tcpSocket]},
	{name: "[method]tcp-socket.receive-buffer-size", params: "ii", answer: code8(8, 8), call: getBuffer[*tcpSocket](receiveBuffer)},
	{name: "[method]tcp-socket.set-receive-buffer-size", params: "iIi", answer: fails, call: setBuffer[*tcpSocket](receiveBuffer)},
	{name: "[method]tcp-socket.send-buffer-size", params: "ii", answer: code8(8, 8), call: getBuffer[*tcpSocket](sendBuffer)},
	{name: "[method]tcp-socket.set-send-buffer-size", params: "iIi", answer: fails, call: setBuffer[*tcpSocket](sendBuffer)},
	{name: "[method]tcp-socket.subscribe", params: "i", results: "i", call: subscribe[*tcpSocket]},
	{name: "[method]tcp-socket.shutdown", params: "iii", answer: fails, call: tcpShutdown},
	{name: "[resource-drop]tcp-socket", params: "i", call: drop[*tcpSocket]},
}
