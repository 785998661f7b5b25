package wasip2

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// streamFailure is the error of a stream that is a connection.
type streamFailure struct{ error }

func (f streamFailure) Unwrap() error { return f.error }

// network is the resource of that name. A guest has the network of its pod.
type network struct{}

func (*network) Drop() {}

func instanceNetwork(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(&network{}, 0))
	return nil
}

// networkErrorCode is the error-code of a stream that is a connection.
func networkErrorCode(c *canonical.Call, p []uint64, out uint32) error {
	var failure streamFailure
	if !errors.As(canonical.Get[*IOError](c, p[0]).Cause, &failure) {
		c.Put8(out, 0)
		return nil
	}
	c.Put8(out, 1)
	putCode(c, out+1, codes.OfSocket(failure))
	return nil
}

var networkFunctions = []canonical.Function{
	{Name: "network-error-code", Params: "ii", Answer: canonical.Answer{Size: 2, Align: 1}, Call: networkErrorCode},
	{Name: "[resource-drop]network", Params: "i", Call: canonical.Drop[*network]},
}

// address reads an ip-socket-address from its flat parameters.
func readAddress(c *canonical.Call, p []uint64) netip.AddrPort {
	canonical.Discriminant(p[0], 2)
	return address.FromFlat(p)
}

// putAddress writes an ip-socket-address.
func putAddress(c *canonical.Call, at uint32, a netip.AddrPort) {
	b := address.Bytes(a)
	c.Memory.Write(at, b[:])
}

// NewSocket makes a socket of the guest's, which never waits. One of IPv6 takes no IPv4.
func (i *Instance) NewSocket(family, kind int) (*wasi.Socket, error) {
	s, err := i.system.Socket(family, kind)
	if err != nil {
		return nil, codes.OfSocket(err)
	}
	if family == unix.AF_INET6 {
		err = s.SetInt(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = s.SetFlags(wasi.Nonblock)
	}
	if err != nil {
		_ = s.Close() // it was never used
		return nil, codes.OfSocket(err)
	}
	return s, nil
}
