package cage

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archCalls are calls that go by another number or exist only here.
var archCalls = []Call{
	allow(unix.SYS_NEWFSTATAT, "newfstatat", "path_filestat_get; "+whyEntry),
	allow(unix.SYS_FADVISE64, "fadvise64", "fd_advise"),
	allow(unix.SYS_RENAMEAT, "renameat", "path_rename"),
}

// mapCalls can make memory executable; the protection is their third argument.
var mapCalls = []call{{unix.SYS_MMAP, "mmap"}}
