package sysctl

import "testing"

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name, slashed, dotted string
		namespace             Namespace
	}{
		{"net.ipv4.ip_forward", "net/ipv4/ip_forward", "net.ipv4.ip_forward", Network},
		{"net/ipv4/ip_forward", "net/ipv4/ip_forward", "net.ipv4.ip_forward", Network},
		{"net.ipv4.conf.eth0/100.forwarding", "net/ipv4/conf/eth0.100/forwarding", "net.ipv4.conf.eth0/100.forwarding", Network},
		{"net/ipv4/conf/eth0.100/forwarding", "net/ipv4/conf/eth0.100/forwarding", "net.ipv4.conf.eth0/100.forwarding", Network},
		{"kernel.shmmax", "kernel/shmmax", "kernel.shmmax", IPC},
		{"fs/mqueue/msg_max", "fs/mqueue/msg_max", "fs.mqueue.msg_max", IPC},
		{"kernel.domainname", "kernel/domainname", "kernel.domainname", UTS},
		{"kernel.hostname", "kernel/hostname", "kernel.hostname", None},
		{"vm.swappiness", "vm/swappiness", "vm.swappiness", None},
		{"network.x", "network/x", "network.x", None},
		{"net", "net", "net", None},
		{"", "", "", None},
	} {
		if s, d, n := Slashed(c.name), Dotted(c.name), NamespaceOf(c.name); s != c.slashed || d != c.dotted || n != c.namespace {
			t.Errorf("%q: %q, %q, %q; want %q, %q, %q", c.name, s, d, n, c.slashed, c.dotted, c.namespace)
		}
	}
}
