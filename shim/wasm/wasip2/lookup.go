package wasip2

import (
	"net/netip"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi/dns"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/address"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// maxName bounds a name that is looked up, in bytes: no name of DNS is longer.
const maxName = 255

// resolveAddressStream is the resource of that name. The name is looked up when the first address is
// asked for, and that call waits: a guest that looks a name up has nothing else to do, and it is
// spared the second thread that waiting aside would need.
type resolveAddressStream struct {
	name      string
	looked    bool
	addresses []netip.Addr // that were not given yet
	err       error
}

func (*resolveAddressStream) Drop() {}

func (*resolveAddressStream) WaitsFor() (wasi.Subscription, bool) { return wasi.Subscription{}, false }

func resolveAddresses(c *canonical.Call, p []uint64, out uint32) error {
	canonical.Get[*network](c, p[0])
	name, err := ReadName(c, p[1], p[2])
	if err != nil {
		return err
	}
	c.Put32(out, c.Add(&resolveAddressStream{name: name}, 0))
	return nil
}

// ReadName copies a name that is to be looked up out of guest memory.
func ReadName(c *canonical.Call, at, length uint64) (string, error) {
	b := c.Text(at, length)
	if len(b) > maxName || !dns.IsName(string(b)) {
		return "", codes.InvalidArgument
	}
	return string(b), nil
}

func resolveNextAddress(c *canonical.Call, p []uint64, out uint32) error {
	s := canonical.Get[*resolveAddressStream](c, p[0])
	if !s.looked {
		s.looked = true
		s.addresses, s.err = Of(c).Resolve(s.name)
	}
	if s.err != nil {
		return s.err
	}
	if len(s.addresses) == 0 {
		c.Put8(out, 0)
		return nil
	}
	ip := s.addresses[0]
	s.addresses = s.addresses[1:]
	// option<ip-address>: its discriminant, and the address 2 bytes behind it.
	c.Put8(out, 1)
	PutIP(c, out+2, ip)
	return nil
}

// PutIP writes an ip-address: its discriminant, and the numbers 2 bytes behind it.
func PutIP(c *canonical.Call, at uint32, ip netip.Addr) {
	if ip.Is4() {
		b := ip.As4()
		c.Put8(at, address.V4)
		c.Memory.Write(at+2, b[:])
		return
	}
	c.Put8(at, address.V6)
	groups := address.Groups(ip)
	c.Memory.Write(at+2, groups[:])
}

// Resolve looks a name up in the files of the guest and by the servers that they name.
//
// # Errors
//
// A codes.Socket.
func (i *Instance) Resolve(name string) ([]netip.Addr, error) {
	answer, err := dns.Resolver{System: i.system, Root: i.root()}.Lookup(name, "", dns.Hints{})
	switch err {
	case nil:
		return answer.Addresses, nil
	case dns.ErrNoName:
		return nil, codes.NameUnresolvable
	case dns.ErrFail:
		return nil, codes.PermanentResolverFailure
	}
	return nil, codes.TemporaryResolverFailure
}

// root is the guest's "/", nil for none.
func (i *Instance) root() *wasi.Dir {
	given, err := i.preopens()
	if err != nil {
		return nil
	}
	for n, p := range i.host.config.Preopens {
		if p.Name == "/" {
			if dir, err := given[n].node.file.AsDir(); err == nil {
				return dir
			}
		}
	}
	return nil
}

var lookupFunctions = []canonical.Function{
	{Name: "resolve-addresses", Params: "iiii", Answer: code8(4, 4), Call: resolveAddresses},
	{Name: "[method]resolve-address-stream.resolve-next-address", Params: "ii", Answer: code8(20, 2), Call: resolveNextAddress},
	{Name: "[method]resolve-address-stream.subscribe", Params: "i", Results: "i", Call: Subscribe[*resolveAddressStream]},
	{Name: "[resource-drop]resolve-address-stream", Params: "i", Call: canonical.Drop[*resolveAddressStream]},
}
