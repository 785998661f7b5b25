package wasmedge

import (
	"encoding/binary"
	"net/netip"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// Address families and socket types.
const (
	familyUnspec uint8 = 0
	familyInet4  uint8 = 1
	familyInet6  uint8 = 2

	socketAny      uint8 = 0
	socketDatagram uint8 = 1
	socketStream   uint8 = 2
)

// sizeStorage is the size of an address that says its family: two bytes of family, then the
// address.
const sizeStorage = 128

// addressBuffer returns the buffer that an address record {pointer, size} points to.
func addressBuffer(mem api.Memory, at uint64) ([]byte, error) {
	head, err := wasip1.Record(mem, at, 8)
	if err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head[4:])
	switch size {
	case 4, 16, sizeStorage:
		return wasip1.Record(mem, uint64(binary.LittleEndian.Uint32(head)), int(size))
	}
	return nil, unix.EINVAL
}

// address reads an address and a port of the guest.
func address(mem api.Memory, at, port uint64) (netip.AddrPort, error) {
	b, err := addressBuffer(mem, at)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(b) == sizeStorage {
		switch binary.LittleEndian.Uint16(b) {
		case uint16(familyInet4):
			b = b[2:6]
		case uint16(familyInet6):
			b = b[2:18]
		default:
			return netip.AddrPort{}, unix.EAFNOSUPPORT
		}
	}
	if uint32(port) > 0xffff {
		return netip.AddrPort{}, unix.EINVAL
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

// putAddress writes an address where the guest has room for it, with its family if the room is that
// large. It returns the family.
func putAddress(b []byte, ip netip.Addr) (uint8, error) {
	family := familyInet6
	if ip.Is4() {
		family = familyInet4
	}
	if len(b) == sizeStorage {
		put16(b, uint16(family))
		b = b[2:]
	}
	raw := ip.AsSlice()
	if len(b) < len(raw) {
		return family, unix.ENOMEM
	}
	copy(b, raw)
	return family, nil
}

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
