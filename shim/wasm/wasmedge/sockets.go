package wasmedge

import (
	"net/netip"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// sockOpen makes a socket. The kernel's is non-blocking; whether the guest's is, its flags say.
func sockOpen(h *wasip1.Host, mem api.Memory, p []uint64) error {
	out, err := wasip1.Record(mem, p[2], 4)
	if err != nil {
		return err
	}
	family, kind := 0, 0
	switch uint32(p[0]) {
	case uint32(familyInet4):
		family = unix.AF_INET
	case uint32(familyInet6):
		family = unix.AF_INET6
	default:
		return unix.EAFNOSUPPORT
	}
	switch uint32(p[1]) {
	case uint32(socketDatagram):
		kind = unix.SOCK_DGRAM
	case uint32(socketStream):
		kind = unix.SOCK_STREAM
	default:
		return unix.EINVAL
	}
	s, err := h.System().Socket(family, kind)
	if err != nil {
		return err
	}
	number, err := h.AddSocket(s)
	if err != nil {
		return err
	}
	put32(out, number)
	return nil
}

// addressed is a call for a socket and an address.
func addressed(do func(*wasi.Socket, netip.AddrPort) error) func(*wasip1.Host, api.Memory, []uint64) error {
	return func(h *wasip1.Host, mem api.Memory, p []uint64) error {
		s, err := h.Socket(p[0])
		if err != nil {
			return err
		}
		to, err := address(mem, p[1], p[2])
		if err != nil {
			return err
		}
		return do(s, to)
	}
}

func sockListen(h *wasip1.Host, _ api.Memory, p []uint64) error {
	s, err := h.Socket(p[0])
	if err != nil {
		return err
	}
	if err := s.Listen(int(int32(p[1]))); err != nil {
		return err
	}
	return h.GrantListener(p[0])
}

// sockAcceptV1 is sock_accept without flags, from before the specification had the function.
func sockAcceptV1(h *wasip1.Host, mem api.Memory, p []uint64) error {
	return wasip1.SockAccept(h, mem, []uint64{p[0], 0, p[1]})
}

// named is a call for an address of a socket, which is written with its port. The first generation
// has the address's family apart, 4 or 6, the second has it in the address.
func named(first bool, ask func(*wasi.Socket) (netip.AddrPort, error)) func(*wasip1.Host, api.Memory, []uint64) error {
	return func(h *wasip1.Host, mem api.Memory, p []uint64) error {
		s, err := h.Socket(p[0])
		if err != nil {
			return err
		}
		b, err := addressBuffer(mem, p[1])
		if err != nil {
			return err
		}
		at := p[2]
		if first {
			at = p[3]
		}
		port, err := wasip1.Record(mem, at, 4)
		if err != nil {
			return err
		}
		var family []byte
		if first {
			if family, err = wasip1.Record(mem, p[2], 4); err != nil {
				return err
			}
		} else if len(b) != sizeStorage {
			return unix.EINVAL
		}
		name, err := ask(s)
		if err != nil {
			return err
		}
		number, err := putAddress(b, name.Addr())
		if err != nil {
			return err
		}
		if first {
			put32(family, map[uint8]uint32{familyInet4: 4, familyInet6: 6}[number])
		}
		put32(port, uint32(name.Port()))
		return nil
	}
}
