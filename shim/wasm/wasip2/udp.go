package wasip2

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// udpSocket is the resource of that name. Its streams have the open file too.
type udpSocket struct {
	node           *node
	socket         *wasi.Socket
	binding, bound bool
	remote         netip.AddrPort // of the streams, zero for any
	streams        int            // that there are
}

func (s *udpSocket) Drop()              { s.node.release() }
func (s *udpSocket) Sock() *wasi.Socket { return s.socket }

// WaitsFor is nothing: no operation of the socket itself takes time.
func (s *udpSocket) WaitsFor() (wasi.Subscription, bool) { return wasi.Subscription{}, false }

func createUDP(c *canonical.Call, p []uint64, out uint32) error {
	socket, err := Of(c).NewSocket(address.Family(canonical.Discriminant(p[0], 2)), unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	c.Put32(out, c.Add(&udpSocket{node: &node{file: &socket.File, users: 1}, socket: socket}, 0))
	return nil
}

func udpStartBind(c *canonical.Call, p []uint64, _ uint32) error {
	s, to := canonical.Get[*udpSocket](c, p[0]), readAddress(c, p[2:])
	canonical.Get[*network](c, p[1])
	switch {
	case s.binding:
		return codes.ConcurrencyConflict
	case s.bound:
		return codes.InvalidState
	}
	if err := address.OfFamily(to.Addr(), s.socket.Family()); err != nil {
		return err
	}
	if err := s.socket.Bind(to); err != nil {
		return codes.OfSocket(err)
	}
	s.binding = true
	return nil
}

func udpFinishBind(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	if !s.binding {
		return codes.NotInProgress
	}
	s.binding, s.bound = false, true
	return nil
}

func udpStream(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	var to netip.AddrPort
	if canonical.Discriminant(p[1], 2) == 1 {
		to = readAddress(c, p[2:])
	}
	switch {
	case s.streams > 0:
		canonical.Trapf("the socket has streams that were not dropped")
	case !s.bound:
		return codes.InvalidState
	}
	if to.IsValid() {
		if err := s.sendable(to); err != nil {
			return err
		}
	}
	if s.remote.IsValid() {
		if err := s.socket.Disconnect(); err != nil {
			return codes.OfSocket(err)
		}
		s.remote = netip.AddrPort{}
	}
	if to.IsValid() {
		if err := s.socket.Connect(to); err != nil {
			return codes.OfConnect(err)
		}
		s.remote = to
	}
	s.streams = 2
	in, stream := datagrams{s.node.use(), s}, datagrams{s.node.use(), s}
	c.Put32(out, c.Add(&incomingDatagramStream{in}, uint32(p[0])))
	c.Put32(out+4, c.Add(&outgoingDatagramStream{datagrams: stream}, uint32(p[0])))
	return nil
}

// sendable checks the address of a datagram's receiver.
func (s *udpSocket) sendable(to netip.AddrPort) error {
	if err := address.OfFamily(to.Addr(), s.socket.Family()); err != nil {
		return err
	}
	return address.Reachable(to)
}

func udpLocalAddress(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	if !s.binding && !s.bound {
		return codes.InvalidState
	}
	a, err := s.socket.LocalAddr()
	if err == nil {
		putAddress(c, out, a)
	}
	return codes.OfSocket(err)
}

func udpRemoteAddress(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	if !s.remote.IsValid() {
		return codes.InvalidState
	}
	putAddress(c, out, s.remote)
	return nil
}

// datagrams is what both streams of a socket have.
type datagrams struct {
	node *node
	of   *udpSocket
}

func (s datagrams) Drop() {
	s.of.streams--
	s.node.release()
}

type incomingDatagramStream struct{ datagrams }

func (s *incomingDatagramStream) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: s.node.file}, true
}

const (
	// maxDatagrams is how many datagrams are moved in one call, maxDatagram the largest one in bytes.
	maxDatagrams = 16
	maxDatagram  = 64 << 10

	incomingSize, incomingAlign = 8 + address.Size, address.Align
	outgoingSize, outgoingAlign = 12 + address.Size, address.Align
)

// received is a datagram that has arrived.
type received struct {
	data []byte
	from netip.AddrPort
}

// receive takes what is there, at most so many.
func (s *incomingDatagramStream) receive(i *Instance, most uint64) ([]received, error) {
	var all []received
	for range min(most, maxDatagrams) {
		b := i.scratch(maxDatagram)
		n, _, from, err := s.of.socket.ReceiveFrom(i.buffers[:0].Add(b), 0)
		switch {
		case err == unix.EAGAIN:
			return all, nil
		case err != nil && len(all) > 0:
			return all, nil // the next call finds nothing, or an error of its own
		case err != nil:
			return nil, codes.OfSocket(err)
		}
		all = append(all, received{append([]byte(nil), b[:n]...), from})
	}
	return all, nil
}

func udpReceive(c *canonical.Call, p []uint64, out uint32) error {
	all, err := canonical.Get[*incomingDatagramStream](c, p[0]).receive(Of(c), p[1])
	if err != nil {
		return err
	}
	at := c.PutList(out, len(all), incomingSize, incomingAlign)
	for _, d := range all {
		c.PutBytes(at, d.data)
		putAddress(c, at+8, d.from)
		at += incomingSize
	}
	return nil
}

type outgoingDatagramStream struct {
	datagrams
	permit uint64 // what may be sent before the next check-send
}

func (s *outgoingDatagramStream) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: s.node.file, Write: true}, true
}

func udpCheckSend(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*outgoingDatagramStream](c, p[0])
	if s.permit = 0; s.of.socket.HasRoom() {
		s.permit = maxDatagrams
	}
	c.Put64(out, s.permit)
	return nil
}

func udpSend(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*outgoingDatagramStream](c, p[0])
	list := c.List(p[1], p[2], outgoingSize, outgoingAlign)
	if n := uint64(len(list) / outgoingSize); n > s.permit {
		canonical.Trapf("%d datagrams sent where check-send permits %d", n, s.permit)
	}
	sent := uint64(0)
	for ; len(list) > 0; list = list[outgoingSize:] {
		err := s.send(c, list[:outgoingSize])
		if err == unix.EAGAIN {
			break
		}
		if err != nil && sent == 0 {
			return codes.OfSocket(err)
		}
		if err != nil {
			break
		}
		sent++
	}
	s.permit -= sent
	c.Put64(out, sent)
	return nil
}

// send sends one datagram.
func (s *outgoingDatagramStream) send(c *canonical.Call, d []byte) error {
	data := c.List(uint64(binary.LittleEndian.Uint32(d)), uint64(binary.LittleEndian.Uint32(d[4:])), 1, 1)
	b := Of(c).buffers[:0].Add(data)
	if canonical.Discriminant(uint64(d[8]), 2) == 0 {
		if !s.of.remote.IsValid() {
			return codes.InvalidArgument
		}
		_, err := s.of.socket.Send(b)
		return err
	}
	canonical.Discriminant(uint64(d[12]), 2)
	to := address.FromMemory(d[12:])
	if err := s.of.sendable(to); err != nil {
		return err
	}
	if s.of.remote.IsValid() {
		if to != s.of.remote {
			return codes.InvalidArgument
		}
		_, err := s.of.socket.Send(b)
		return err
	}
	_, err := s.of.socket.SendTo(b, to)
	return err
}

var udpFunctions = []canonical.Function{
	{Name: "[method]udp-socket.start-bind", Params: "i" + flat + "i", Answer: fails, Call: udpStartBind},
	{Name: "[method]udp-socket.finish-bind", Params: "ii", Answer: fails, Call: udpFinishBind},
	{Name: "[method]udp-socket.stream", Params: "i" + flat + "i", Answer: code8(8, 4), Call: udpStream},
	{Name: "[method]udp-socket.local-address", Params: "ii", Answer: code8(address.Size, address.Align), Call: udpLocalAddress},
	{Name: "[method]udp-socket.remote-address", Params: "ii", Answer: code8(address.Size, address.Align), Call: udpRemoteAddress},
	{Name: "[method]udp-socket.address-family", Params: "i", Results: "i", Call: addressFamily[*udpSocket]},
	{Name: "[method]udp-socket.unicast-hop-limit", Params: "ii", Answer: fails, Call: getHops[*udpSocket]},
	{Name: "[method]udp-socket.set-unicast-hop-limit", Params: "iii", Answer: fails, Call: setHops[*udpSocket]},
	{Name: "[method]udp-socket.receive-buffer-size", Params: "ii", Answer: code8(8, 8), Call: getBuffer[*udpSocket](receiveBuffer)},
	{Name: "[method]udp-socket.set-receive-buffer-size", Params: "iIi", Answer: fails, Call: setBuffer[*udpSocket](receiveBuffer)},
	{Name: "[method]udp-socket.send-buffer-size", Params: "ii", Answer: code8(8, 8), Call: getBuffer[*udpSocket](sendBuffer)},
	{Name: "[method]udp-socket.set-send-buffer-size", Params: "iIi", Answer: fails, Call: setBuffer[*udpSocket](sendBuffer)},
	{Name: "[method]udp-socket.subscribe", Params: "i", Results: "i", Call: Subscribe[*udpSocket]},
	{Name: "[resource-drop]udp-socket", Params: "i", Call: canonical.Drop[*udpSocket]},
	{Name: "[method]incoming-datagram-stream.receive", Params: "iIi", Answer: code8(8, 4), Reallocs: true, Call: udpReceive},
	{Name: "[method]incoming-datagram-stream.subscribe", Params: "i", Results: "i", Call: Subscribe[*incomingDatagramStream]},
	{Name: "[resource-drop]incoming-datagram-stream", Params: "i", Call: canonical.Drop[*incomingDatagramStream]},
	{Name: "[method]outgoing-datagram-stream.check-send", Params: "ii", Answer: code8(8, 8), Call: udpCheckSend},
	{Name: "[method]outgoing-datagram-stream.send", Params: "iiii", Answer: code8(8, 8), Call: udpSend},
	{Name: "[method]outgoing-datagram-stream.subscribe", Params: "i", Results: "i", Call: Subscribe[*outgoingDatagramStream]},
	{Name: "[resource-drop]outgoing-datagram-stream", Params: "i", Call: canonical.Drop[*outgoingDatagramStream]},
}
