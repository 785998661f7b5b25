package wasip1

import (
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// sockAcceptV1 is sock_accept without flags, from before the specification had the function.
func sockAcceptV1(h *Host, mem api.Memory, p []uint64) errno {
	return h.acceptInto(mem, p[0], 0, p[1])
}

// sockRecvFrom receives a message and tells where it came from. Its port is a u16 whose bytes beyond
// that, if the guest has some, are its own to clear.
func sockRecvFrom(h *Host, mem api.Memory, p []uint64) errno {
	return h.receiveFrom(mem, [8]uint64(p))
}

// sockRecvFromV1 is the same without the port.
func sockRecvFromV1(h *Host, mem api.Memory, p []uint64) errno {
	return h.receiveFrom(mem, [8]uint64{p[0], p[1], p[2], p[3], p[4], 0, p[5], p[6]})
}

func (h *Host) receiveFrom(mem api.Memory, p [8]uint64) errno {
	f, e := h.socketFile(p[0], rightFdRead)
	if e != success {
		return e
	}
	from, e := addressBuffer(mem, p[3])
	if e != success {
		return e
	}
	size, e := record(mem, p[6], 4)
	if e != success {
		return e
	}
	result, e := record(mem, p[7], 2)
	if e != success {
		return e
	}
	port, e := record(mem, p[5], 2)
	if e != success {
		return e
	}
	iovs, e := h.vectors(mem, p[1], p[2])
	if e != success {
		return e
	}
	h.name = unix.RawSockaddrAny{}
	n, out, e := h.receiveAsked(f, iovs, p[4], unix.SizeofSockaddrAny)
	h.release()
	put32(size, n)
	put16(result, out)
	if e != success {
		return e
	}
	name := h.getName()
	if !name.IsValid() {
		return success // a connected stream's messages have no sender
	}
	if p[5] != 0 {
		put16(port, name.Port())
	}
	ip := name.Addr()
	if len(from) == 4 {
		ip = ip.Unmap()
	}
	_, e = putAddress(from, ip)
	return e
}

// sockSendTo sends a message to an address.
func sockSendTo(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.socketFile(p[0], rightFdWrite)
	if e != success {
		return e
	}
	to, e := address(mem, p[3], p[4])
	if e != success {
		return e
	}
	if uint32(p[5]) != 0 {
		return einval
	}
	result, e := record(mem, p[6], 4)
	if e != success {
		return e
	}
	size, e := h.setName(f.domain(), to)
	if e != success {
		return e
	}
	iovs, e := h.vectors(mem, p[1], p[2])
	if e != success {
		return e
	}
	n, e := h.send(f, iovs, size)
	h.release()
	put32(result, n)
	return e
}
