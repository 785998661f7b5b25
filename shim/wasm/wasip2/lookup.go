package wasip2

import (
	"net/netip"

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

func (*resolveAddressStream) drop() {}

func (*resolveAddressStream) waitsFor() (wasi.Subscription, bool) { return wasi.Subscription{}, false }

func resolveAddresses(c *call, p []uint64, out uint32) error {
	get[*network](c.host, p[0])
	b := c.text(p[1], p[2])
	if len(b) > maxName || !dns.IsName(string(b)) {
		return codes.InvalidArgument
	}
	c.put32(out, c.host.handles.add(&resolveAddressStream{name: string(b)}, 0))
	return nil
}

func resolveNextAddress(c *call, p []uint64, out uint32) error {
	s := get[*resolveAddressStream](c.host, p[0])
	if !s.looked {
		s.looked = true
		s.addresses, s.err = c.host.resolve(s.name)
	}
	if s.err != nil {
		return s.err
	}
	if len(s.addresses) == 0 {
		c.put8(out, 0)
		return nil
	}
	ip := s.addresses[0]
	s.addresses = s.addresses[1:]
	// option<ip-address>: its discriminant, that of the address 2 bytes behind it, the address.
	c.put8(out, 1)
	if ip.Is4() {
		b := ip.As4()
		c.put8(out+2, address.V4)
		c.mem.Write(out+4, b[:])
		return nil
	}
	c.put8(out+2, address.V6)
	groups := address.Groups(ip)
	c.mem.Write(out+4, groups[:])
	return nil
}

// resolve looks a name up in the files of the guest and by the servers that they name.
func (h *Host) resolve(name string) ([]netip.Addr, error) {
	answer, err := dns.Resolver{System: h.system, Root: h.root()}.Lookup(name, "", dns.Hints{})
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
func (h *Host) root() *wasi.Dir {
	for i, p := range h.config.Preopens {
		if p.Name == "/" {
			if dir, err := h.given[i].node.file.AsDir(); err == nil {
				return dir
			}
		}
	}
	return nil
}

var lookupFunctions = []function{
	{name: "resolve-addresses", params: "iiii", answer: code8(4, 4), call: resolveAddresses},
	{name: "[method]resolve-address-stream.resolve-next-address", params: "ii", answer: code8(20, 2), call: resolveNextAddress},
	{name: "[method]resolve-address-stream.subscribe", params: "i", results: "i", call: subscribe[*resolveAddressStream]},
	{name: "[resource-drop]resolve-address-stream", params: "i", call: drop[*resolveAddressStream]},
}
