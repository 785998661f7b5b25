package wasip2

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// Socket is a resource that is a socket.
type Socket interface {
	canonical.Resource
	Sock() *wasi.Socket
}

func addressFamily[T Socket](c *canonical.Call, p []uint64, _ uint32) error {
	v4 := canonical.Get[T](c, p[0]).Sock().Family() == unix.AF_INET
	if p[0] = address.V6; v4 {
		p[0] = address.V4
	}
	return nil
}

// option is an option of the kernel's.
type option struct{ level, name int }

var (
	keepAlive         = option{unix.SOL_SOCKET, unix.SO_KEEPALIVE}
	keepAliveIdle     = option{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}
	keepAliveInterval = option{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}
	keepAliveCount    = option{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}
	receiveBuffer     = option{unix.SOL_SOCKET, unix.SO_RCVBUF}
	sendBuffer        = option{unix.SOL_SOCKET, unix.SO_SNDBUF}
)

// hops is the option that has the hop limit of a socket.
func hops(s *wasi.Socket) option {
	if s.Family() == unix.AF_INET {
		return option{unix.IPPROTO_IP, unix.IP_TTL}
	}
	return option{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS}
}

func (o option) of(s *wasi.Socket) (uint64, error) {
	n, err := s.Int(o.level, o.name)
	return uint64(max(n, 0)), codes.OfSocket(err)
}

// set sets the option to a value from 1 to most: 0 is refused, what is larger is cut.
func (o option) set(s *wasi.Socket, value, most uint64) error {
	if value == 0 {
		return codes.InvalidArgument
	}
	return codes.OfSocket(s.SetInt(o.level, o.name, int(min(value, most))))
}

// The largest values that Linux takes.
const (
	mostSeconds = 32767 // MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL
	mostProbes  = 127   // MAX_TCP_KEEPCNT
	mostBuffer  = math.MaxInt32 / 2
)

func getHops[T Socket](c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[T](c, p[0]).Sock()
	n, err := hops(s).of(s)
	c.Put8(out, uint8(n))
	return err
}

func setHops[T Socket](c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[T](c, p[0]).Sock()
	return hops(s).set(s, uint64(uint8(p[1])), math.MaxUint8)
}

// getBuffer reads the size of a buffer. Linux doubles what is set, for its own bookkeeping.
func getBuffer[T Socket](o option) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		n, err := o.of(canonical.Get[T](c, p[0]).Sock())
		c.Put64(out, n/2)
		return err
	}
}

func setBuffer[T Socket](o option) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		return o.set(canonical.Get[T](c, p[0]).Sock(), p[1], mostBuffer)
	}
}

// getSeconds reads an option of seconds as nanoseconds.
func getSeconds[T Socket](o option) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		n, err := o.of(canonical.Get[T](c, p[0]).Sock())
		c.Put64(out, n*uint64(time.Second))
		return err
	}
}

// setSeconds rounds up.
func setSeconds[T Socket](o option) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		seconds := p[1] / uint64(time.Second)
		if p[1]%uint64(time.Second) != 0 {
			seconds++
		}
		return o.set(canonical.Get[T](c, p[0]).Sock(), seconds, mostSeconds)
	}
}

func getKeepAlive[T Socket](c *canonical.Call, p []uint64, out uint32) error {
	n, err := keepAlive.of(canonical.Get[T](c, p[0]).Sock())
	c.PutBool(out, n != 0)
	return err
}

func setKeepAlive[T Socket](c *canonical.Call, p []uint64, _ uint32) error {
	on := 0
	if uint32(p[1]) != 0 {
		on = 1
	}
	return codes.OfSocket(canonical.Get[T](c, p[0]).Sock().SetInt(keepAlive.level, keepAlive.name, on))
}

func getCount[T Socket](c *canonical.Call, p []uint64, out uint32) error {
	n, err := keepAliveCount.of(canonical.Get[T](c, p[0]).Sock())
	c.Put32(out, uint32(n))
	return err
}

func setCount[T Socket](c *canonical.Call, p []uint64, _ uint32) error {
	return keepAliveCount.set(canonical.Get[T](c, p[0]).Sock(), uint64(uint32(p[1])), mostProbes)
}
