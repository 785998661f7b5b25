package dns

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// uncommented cuts a comment off a line.
func uncommented(line string) string {
	if i := strings.IndexAny(line, "#;"); i >= 0 {
		return line[:i]
	}
	return line
}

// resolvConf is what /etc/resolv.conf says, with the defaults of resolv.conf(5).
type resolvConf struct {
	servers  []netip.AddrPort
	search   []string
	ndots    int
	timeout  time.Duration
	attempts int
}

// parseResolvConf reads a resolv.conf. Unknown words are skipped.
func parseResolvConf(content string) resolvConf {
	c := resolvConf{ndots: 1, timeout: 5 * time.Second, attempts: 2}
	for line := range strings.Lines(content) {
		fields := strings.Fields(uncommented(line))
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if ip, err := netip.ParseAddr(fields[1]); err == nil && len(c.servers) < 3 {
				c.servers = append(c.servers, netip.AddrPortFrom(ip.WithZone(""), 53))
			}
		case "domain", "search":
			c.search = fields[1:]
		case "options":
			for _, option := range fields[1:] {
				name, value, _ := strings.Cut(option, ":")
				n, err := strconv.Atoi(value)
				if err != nil || n < 0 {
					continue
				}
				switch name {
				case "ndots":
					c.ndots = min(n, 15)
				case "timeout":
					c.timeout = time.Duration(min(max(n, 1), 30)) * time.Second
				case "attempts":
					c.attempts = min(max(n, 1), 5)
				}
			}
		}
	}
	if len(c.servers) == 0 {
		c.servers = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)}
	}
	return c
}

// names are the full names to ask for, in order.
func (c resolvConf) names(node string) []string {
	if strings.HasSuffix(node, ".") {
		return []string{node}
	}
	var all []string
	for _, domain := range c.search {
		if name := node + "." + strings.Trim(domain, ".") + "."; validName(name) {
			all = append(all, name)
		}
	}
	if strings.Count(node, ".") >= c.ndots {
		return append([]string{node + "."}, all...)
	}
	return append(all, node+".")
}

// validName reports whether DNS can carry a name.
func validName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

// hostsAddresses finds a name in the content of a hosts file.
func hostsAddresses(content, node string) []netip.Addr {
	var all []netip.Addr
	node = strings.TrimSuffix(node, ".")
	for line := range strings.Lines(content) {
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		for _, name := range fields[1:] {
			if ip, err := netip.ParseAddr(fields[0]); err == nil && strings.EqualFold(strings.TrimSuffix(name, "."), node) {
				all = append(all, ip.WithZone(""))
				break
			}
		}
	}
	return all
}
