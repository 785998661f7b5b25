// Package sysctl knows how kernel parameters are named and which namespaces they belong to.
package sysctl

import (
	"slices"
	"strings"
)

// Namespace is a kind of namespace, as messages name it.
type Namespace string

// The namespaces that have kernel parameters of their own. None is the whole machine.
const (
	Network Namespace = "network"
	IPC     Namespace = "IPC"
	UTS     Namespace = "UTS"
	None    Namespace = ""
)

// ipc is what the kernel keeps per IPC namespace (ipc/ipc_sysctl.c), besides all of fs.mqueue.
var ipc = []string{
	"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/msg_next_id", "kernel/auto_msgmni",
	"kernel/sem", "kernel/sem_next_id",
	"kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/shm_next_id", "kernel/shm_rmid_forced",
}

// Slashed returns the form of a name that is its path below /proc/sys. As sysctl(8) has it, the
// first separator, dot or slash, stands between the parts, and the other one for a dot inside a
// part (net.ipv4.conf.eth0/100.forwarding). It does not check the name.
func Slashed(name string) string { return with('/', name) }

// Dotted returns the form of a name with dots between its parts.
func Dotted(name string) string { return with('.', name) }

// with returns the form of a name in which this separator stands between the parts.
func with(separator byte, name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == separator {
		return name
	}
	return strings.NewReplacer(".", "/", "/", ".").Replace(name)
}

// NamespaceOf returns the namespace of the parameter with this name, in either form. The host name
// is of the UTS namespace too, and None here: a container's host name is set by other means.
func NamespaceOf(name string) Namespace {
	p := Slashed(name)
	switch {
	case strings.HasPrefix(p, "net/"):
		return Network
	case slices.Contains(ipc, p) || strings.HasPrefix(p, "fs/mqueue/"):
		return IPC
	case p == "kernel/domainname":
		return UTS
	}
	return None
}
