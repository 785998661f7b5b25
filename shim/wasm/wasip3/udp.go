package wasip3

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

const (
	maxDatagram = 64 << 10        // the largest datagram, in bytes
	maxWaiting  = 4 * maxDatagram // bytes that wait to be sent by one socket
)

// udpSocket is the resource of that name.
type udpSocket struct {
	*shared
	bound  bool
	remote netip.AddrPort // that it is connected to, zero for none
	waits  int            // bytes that wait to be sent
}

// Drop implements canonical.Resource.
func (s *udpSocket) Drop() { s.release() }

// Sock implements wasip2.Socket.
func (s *udpSocket) Sock() *wasi.Socket { return s.Socket }

func udpCreate(c *canonical.Call, p []uint64, out uint32) error {
	s, err := newSocket(c, p[0], unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	c.Put32(out, c.Add(&udpSocket{shared: s}, 0))
	return nil
}

func udpBind(c *canonical.Call, p []uint64, _ uint32) error {
	s, to := canonical.Get[*udpSocket](c, p[0]), readAddress(p[1:])
	if s.bound {
		return codes.InvalidState
	}
	err := address.OfFamily(to.Addr(), s.Family())
	if err == nil {
		err = s.Bind(to)
	}
	s.bound = err == nil
	return err
}

// sendable checks the address of a datagram's receiver.
func (s *udpSocket) sendable(to netip.AddrPort) error {
	if err := address.OfFamily(to.Addr(), s.Family()); err != nil {
		return err
	}
	return address.Reachable(to)
}

func udpConnect(c *canonical.Call, p []uint64, _ uint32) error {
	s, to := canonical.Get[*udpSocket](c, p[0]), readAddress(p[1:])
	err := s.sendable(to)
	if err == nil && s.remote.IsValid() {
		s.remote = netip.AddrPort{}
		err = s.Disconnect()
	}
	if err != nil {
		return err
	}
	if err := s.Connect(to); err != nil {
		return codes.OfConnect(err)
	}
	s.bound, s.remote = true, to
	return nil
}

func udpDisconnect(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	if !s.remote.IsValid() {
		return codes.InvalidState
	}
	s.remote = netip.AddrPort{}
	return s.Disconnect()
}

// udpOperation is a datagram that is sent or received.
type udpOperation struct {
	async.Going
	of   *udpSocket
	data []byte // that is sent, nil to receive
	to   netip.AddrPort
}

// start has the operation continue, with a use of the socket.
func (o *udpOperation) start() error {
	o.of.use()
	return o
}

// WaitsFor implements async.Work.
func (o *udpOperation) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: &o.of.File, Write: o.data != nil}, true
}

// Step implements canonical.Operation.
func (o *udpOperation) Step(c *canonical.Call, out uint32) (bool, error) {
	var err error
	if o.data != nil {
		err = o.send()
	} else {
		err = o.receive(c, out)
	}
	if err == unix.EAGAIN {
		return false, nil
	}
	o.Cancel()
	return true, err
}

// Cancel implements canonical.Operation.
func (o *udpOperation) Cancel() {
	o.of.waits -= len(o.data)
	o.of.release()
}

func (o *udpOperation) send() (err error) {
	b := wasi.Buffers{}.Add(o.data)
	if o.to.IsValid() {
		_, err = o.of.SendTo(b, o.to)
	} else {
		_, err = o.of.Send(b)
	}
	if err == nil {
		o.of.bound = true
	}
	return err
}

func (o *udpOperation) receive(c *canonical.Call, out uint32) error {
	b := make([]byte, maxDatagram)
	n, _, from, err := o.of.ReceiveFrom(wasi.Buffers{}.Add(b), 0)
	if err != nil {
		return err
	}
	c.PutBytes(out, b[:n])
	putAddress(c, out+8, from)
	return nil
}

func udpSend(c *canonical.Call, p []uint64, _ uint32) error {
	s, data := canonical.Get[*udpSocket](c, p[0]), c.List(p[1], p[2], 1, 1)
	o := &udpOperation{of: s}
	if canonical.Discriminant(p[3], 2) == 1 {
		o.to = readAddress(p[4:])
	}
	switch {
	case len(data) > maxDatagram:
		return codes.DatagramTooLarge
	case !o.to.IsValid() && !s.remote.IsValid():
		return codes.InvalidArgument
	case o.to.IsValid():
		if err := s.sendable(o.to); err != nil {
			return err
		}
		if s.remote.IsValid() && o.to != s.remote {
			return codes.InvalidArgument
		}
		if s.remote.IsValid() {
			o.to = netip.AddrPort{} // where it is connected to
		}
	}
	if s.waits+len(data) > maxWaiting {
		return codes.OutOfMemory
	}
	o.data = append([]byte{}, data...)
	s.waits += len(data)
	return o.start()
}

func udpReceive(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	if !s.bound {
		return codes.InvalidState
	}
	return (&udpOperation{of: s}).start()
}

func udpLocal(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	return answerAddress(c, out, s.bound, s.LocalAddr)
}

func udpRemote(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*udpSocket](c, p[0])
	if !s.remote.IsValid() {
		return codes.InvalidState
	}
	putAddress(c, out, s.remote)
	return nil
}

func udpFunctions() []canonical.Function {
	const m = "[method]udp-socket."
	where := socketCode(address.Size, address.Align)
	return append([]canonical.Function{
		{Name: "[static]udp-socket.create", Params: "ii", Answer: socketCode(4, 4), Call: udpCreate},
		{Name: m + "bind", Params: "i" + flat + "i", Answer: socketCode(0, 1), Call: udpBind},
		{Name: m + "connect", Params: "i" + flat + "i", Answer: socketCode(0, 1), Call: udpConnect},
		{Name: m + "disconnect", Params: "ii", Answer: socketCode(0, 1), Call: udpDisconnect},
		{Name: m + "send", Params: "iiii" + flat + "i", Async: true, Spill: "is<|" + spilled + ">", Answer: socketCode(0, 1), Call: udpSend},
		{Name: m + "receive", Params: "ii", Async: true, Reallocs: true, Answer: socketCode(8+address.Size, 4), Call: udpReceive},
		{Name: m + "get-local-address", Params: "ii", Answer: where, Call: udpLocal},
		{Name: m + "get-remote-address", Params: "ii", Answer: where, Call: udpRemote},
		{Name: "[resource-drop]udp-socket", Params: "i", Call: canonical.Drop[*udpSocket]},
	}, options(wasip2.UDPOptions[*udpSocket](), m)...)
}
