package wasmedge

import (
	"net/netip"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// sockRecvFrom receives a message and tells where it came from. Its port is a u16 whose bytes
// beyond that, if the guest has some, are its own to clear.
func sockRecvFrom(h *wasip1.Host, mem api.Memory, p []uint64) error {
	return receiveFrom(h, mem, [8]uint64(p))
}

// sockRecvFromV1 is the same without the port.
func sockRecvFromV1(h *wasip1.Host, mem api.Memory, p []uint64) error {
	return receiveFrom(h, mem, [8]uint64{p[0], p[1], p[2], p[3], p[4], 0, p[5], p[6]})
}

func receiveFrom(h *wasip1.Host, mem api.Memory, p [8]uint64) error {
	s, err := h.SocketToRead(p[0])
	if err != nil {
		return err
	}
	from, err := addressBuffer(mem, p[3])
	if err != nil {
		return err
	}
	size, err := wasip1.Record(mem, p[6], 4)
	if err != nil {
		return err
	}
	result, err := wasip1.Record(mem, p[7], 2)
	if err != nil {
		return err
	}
	port, err := wasip1.Record(mem, p[5], 2)
	if err != nil {
		return err
	}
	buffers, err := h.Buffers(mem, p[1], p[2])
	if err != nil {
		return err
	}
	how, err := wasip1.GetReceiveFlags(p[4])
	var n int
	var truncated bool
	var sender netip.AddrPort
	if err == nil {
		n, truncated, sender, err = s.ReceiveFrom(buffers, how)
	}
	h.Release()
	wasip1.PutReceived(size, result, n, truncated)
	if err != nil || !sender.IsValid() { // a connected stream's messages have no sender
		return err
	}
	if p[5] != 0 {
		put16(port, sender.Port())
	}
	ip := sender.Addr()
	if len(from) == 4 {
		ip = ip.Unmap()
	}
	_, err = putAddress(from, ip)
	return err
}

// sockSendTo sends a message to an address.
func sockSendTo(h *wasip1.Host, mem api.Memory, p []uint64) error {
	s, err := h.SocketToWrite(p[0])
	if err != nil {
		return err
	}
	to, err := address(mem, p[3], p[4])
	if err != nil {
		return err
	}
	if uint32(p[5]) != 0 {
		return unix.EINVAL
	}
	result, err := wasip1.Record(mem, p[6], 4)
	if err != nil {
		return err
	}
	buffers, err := h.Buffers(mem, p[1], p[2])
	if err != nil {
		return err
	}
	n, err := s.SendTo(buffers, to)
	h.Release()
	put32(result, uint32(n))
	return err
}
