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

// Cases of wasi:sockets' error-code. It has some of those of WASI 0.2 in another order, and
// connection-broken.
const (
	connectionBroken = 10
	otherSocket      = 14
)

// socketCodes maps the codes of WASI 0.2. What is missing is other.
var socketCodes = map[codes.Socket]uint8{
	codes.AccessDenied:       0,
	codes.NotSupported:       1,
	codes.InvalidArgument:    2,
	codes.OutOfMemory:        3,
	codes.NewSocketLimit:     3,
	codes.Timeout:            4,
	codes.InvalidState:       5,
	codes.AddressNotBindable: 6,
	codes.AddressInUse:       7,
	codes.RemoteUnreachable:  8,
	codes.ConnectionRefused:  9,
	codes.ConnectionReset:    11,
	codes.ConnectionAborted:  12,
	codes.DatagramTooLarge:   13,
}

// putSocketCode writes an error-code of wasi:sockets.
func putSocketCode(c *canonical.Call, at uint32, err error) {
	code, known := uint8(otherSocket), false
	if err == unix.EPIPE {
		code, known = connectionBroken, true
	} else if of, is := codes.OfSocket(err).(codes.Socket); is {
		code, known = socketCodes[of]
	}
	if !known {
		code = otherSocket
		c.Put8(at+codeAlign, 0) // there is no text
	}
	c.Put8(at, code)
}

// socketCode is result<T, error-code> of wasi:sockets for a T of this size and alignment.
func socketCode(size, align uint32) canonical.Answer {
	return canonical.Result(max(size, codeSize), max(align, codeAlign), putSocketCode)
}

// socketOutcome is that of a stream of a connection.
func socketOutcome() *outcome {
	return &outcome{element: async.Element{Size: codeAlign + codeSize, Align: codeAlign}, put: putSocketCode, payload: codeAlign}
}

// shared is a socket that several resources and streams have. It is closed with the last of them.
type shared struct {
	*wasi.Socket
	users int
}

func (s *shared) use() *shared { s.users++; return s }

func (s *shared) release() {
	if s.users--; s.users == 0 {
		_ = s.Close() // Drop has no result
	}
}

// newSocket makes a socket of the guest's.
func newSocket(c *canonical.Call, family uint64, kind int) (*shared, error) {
	s, err := wasip2.Of(c).NewSocket(address.Family(canonical.Discriminant(family, 2)), kind)
	if err != nil {
		return nil, err
	}
	return &shared{Socket: s, users: 1}, nil
}

// readAddress reads an ip-socket-address from its flat parameters.
func readAddress(p []uint64) netip.AddrPort {
	canonical.Discriminant(p[0], 2)
	return address.FromFlat(p)
}

// putAddress writes an ip-socket-address.
func putAddress(c *canonical.Call, at uint32, a netip.AddrPort) {
	b := address.Bytes(a)
	c.Memory.Write(at, b[:])
}

// answerAddress writes an address of a socket whose state has one.
func answerAddress(c *canonical.Call, out uint32, has bool, of func() (netip.AddrPort, error)) error {
	if !has {
		return codes.InvalidState
	}
	a, err := of()
	if err == nil {
		putAddress(c, out, a)
	}
	return err
}

// flat are the flat parameters of an ip-socket-address, and spilled its layout in memory.
const (
	flat    = "iiiiiiiiiiii"
	spilled = "<(h(bbbb))|(hi(hhhhhhhh)i)>"
)
