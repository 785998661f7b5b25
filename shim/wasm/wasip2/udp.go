package wasip2

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

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

func (s *udpSocket) drop()              { s.node.release() }
func (s *udpSocket) sock() *wasi.Socket { return s.socket }

// waitsFor is nothing: no operation of the socket itself takes time.
func (s *udpSocket) waitsFor() (wasi.Subscription, bool) { return wasi.Subscription{}, false }

func createUDP(c *call, p []uint64, out uint32) error {
	socket, err := c.host.newSocket(address.Family(discriminant(p[0], 2)), unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	c.put32(out, c.host.handles.add(&udpSocket{node: &node{file: &socket.File, users: 1}, socket: socket}, 0))
	return nil
}

func udpStartBind(c *call, p []uint64, _ uint32) error {
	s, to := get[*udpSocket](c.host, p[0]), c.address(p[2:])
	get[*network](c.host, p[1])
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

func udpFinishBind(c *call, p []uint64, _ uint32) error {
	s := get[*udpSocket](c.host, p[0])
	if !s.binding {
		return codes.NotInProgress
	}
	s.binding, s.bound = false, true
	return nil
}

func udpStream(c *call, p []uint64, out uint32) error {
	s := get[*udpSocket](c.host, p[0])
	var to netip.AddrPort
	if discriminant(p[1], 2) == 1 {
		to = c.address(p[2:])
	}
	switch {
	case s.streams > 0:
		trapf("the socket has streams that were not dropped")
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
	c.put32(out, c.host.handles.add(&incomingDatagramStream{in}, uint32(p[0])))
	c.put32(out+4, c.host.handles.add(&outgoingDatagramStream{datagrams: stream}, uint32(p[0])))
	return nil
}

// sendable checks the address of a datagram's receiver.
func (s *udpSocket) sendable(to netip.AddrPort) error {
	if err := address.OfFamily(to.Addr(), s.socket.Family()); err != nil {
		return err
	}
	return address.Reachable(to)
}

func udpLocalAddress(c *call, p []uint64, out uint32) error {
	s := get[*udpSocket](c.host, p[0])
	if !s.binding && !s.bound {
		return codes.InvalidState
	}
	a, err := s.socket.LocalAddr()
	if err == nil {
		c.putAddress(out, a)
	}
	return codes.OfSocket(err)
}

func udpRemoteAddress(c *call, p []uint64, out uint32) error {
	s := get[*udpSocket](c.host, p[0])
	if !s.remote.IsValid() {
		return codes.InvalidState
	}
	c.putAddress(out, s.remote)
	return nil
}

// datagrams is what both streams of a socket have.
type datagrams struct {
	node *node
	of   *udpSocket
}

func (s datagrams) drop() {
	s.of.streams--
	s.node.release()
}

type incomingDatagramStream struct{ datagrams }

func (s *incomingDatagramStream) waitsFor() (wasi.Subscription, bool) {
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
func (s *incomingDatagramStream) receive(h *Host, most uint64) ([]received, error) {
	var all []received
	for range min(most, maxDatagrams) {
		b := h.scratch(maxDatagram)
		n, _, from, err := s.of.socket.ReceiveFrom(h.buffers[:0].Add(b), 0)
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

func udpReceive(c *call, p []uint64, out uint32) error {
	all, err := get[*incomingDatagramStream](c.host, p[0]).receive(c.host, p[1])
	if err != nil {
		return err
	}
	at := c.putList(out, len(all), incomingSize, incomingAlign)
	for _, d := range all {
		c.putBytes(at, d.data)
		c.putAddress(at+8, d.from)
		at += incomingSize
	}
	return nil
}

type outgoingDatagramStream struct {
	datagrams
	permit uint64 // what may be sent before the next check-send
}

func (s *outgoingDatagramStream) waitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: s.node.file, Write: true}, true
}

func udpCheckSend(c *call, p []uint64, out uint32) error {
	s := get[*outgoingDatagramStream](c.host, p[0])
	if s.permit = 0; s.of.socket.HasRoom() {
		s.permit = maxDatagrams
	}
	c.put64(out, s.permit)
	return nil
}

func udpSend(c *call, p []uint64, out uint32) error {
	s := get[*outgoingDatagramStream](c.host, p[0])
	list := c.list(p[1], p[2], outgoingSize, outgoingAlign)
	if n := uint64(len(list) / outgoingSize); n > s.permit {
		trapf("%d datagrams sent where check-send permits %d", n, s.permit)
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
	c.put64(out, sent)
	return nil
}

// send sends one datagram.
func (s *outgoingDatagramStream) send(c *call, d []byte) error {
	data := c.list(uint64(binary.LittleEndian.Uint32(d)), uint64(binary.LittleEndian.Uint32(d[4:])), 1, 1)
	b := c.host.buffers[:0].Add(data)
	if discriminant(uint64(d[8]), 2) == 0 {
		if !s.of.remote.IsValid() {
			return codes.InvalidArgument
		}
		_, err := s.of.socket.Send(b)
		return err
	}
	discriminant(uint64(d[12]), 2)
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

var udpFunctions = []function{
	{name: "[method]udp-socket.start-bind", params: "i" + flat + "i", answer: fails, call: udpStartBind},
	{name: "[method]udp-socket.finish-bind", params: "ii", answer: fails, call: udpFinishBind},
	{name: "[method]udp-socket.stream", params: "i" + flat + "i", answer: code8(8, 4), call: udpStream},
	{name: "[method]udp-socket.local-address", params: "ii", answer: code8(address.Size, address.Align), call: udpLocalAddress},
	{name: "[method]udp-socket.remote-address", params: "ii", answer: code8(address.Size, address.Align), call: udpRemoteAddress},
	{name: "[method]udp-socket.address-family", params: "i", results: "i", call: addressFamily[*udpSocket]},
	{name: "[method]udp-socket.unicast-hop-limit", params: "ii", answer: fails, call: getHops[*udpSocket]},
	{name: "[method]udp-socket.set-unicast-hop-limit", params: "iii", answer: fails, call: setHops[*udpSocket]},
	{name: "[method]udp-socket.receive-buffer-size", params: "ii", answer: code8(8, 8), call: getBuffer[*udpSocket](receiveBuffer)},
	{name: "[method]udp-socket.set-receive-buffer-size", params: "iIi", answer: fails, call: setBuffer[*udpSocket](receiveBuffer)},
	{name: "[method]udp-socket.send-buffer-size", params: "ii", answer: code8(8, 8), call: getBuffer[*udpSocket](sendBuffer)},
	{name: "[method]udp-socket.set-send-buffer-size", params: "iIi", answer: fails, call: setBuffer[*udpSocket](sendBuffer)},
	{name: "[method]udp-socket.subscribe", params: "i", results: "i", call: subscribe[*udpSocket]},
	{name: "[resource-drop]udp-socket", params: "i", call: drop[*udpSocket]},
	{name: "[method]incoming-datagram-stream.receive", params: "iIi", answer: code8(8, 4), reallocs: true, call: udpReceive},
	{name: "[method]incoming-datagram-stream.subscribe", params: "i", results: "i", call: subscribe[*incomingDatagramStream]},
	{name: "[resource-drop]incoming-datagram-stream", params: "i", call: drop[*incomingDatagramStream]},
	{name: "[method]outgoing-datagram-stream.check-send", params: "ii", answer: code8(8, 8), call: udpCheckSend},
	{name: "[method]outgoing-datagram-stream.send", params: "iiii", answer: code8(8, 8), call: udpSend},
	{name: "[method]outgoing-datagram-stream.subscribe", params: "i", results: "i", call: subscribe[*outgoingDatagramStream]},
	{name: "[resource-drop]outgoing-datagram-stream", params: "i", call: drop[*outgoingDatagramStream]},
}
