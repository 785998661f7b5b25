package cage

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_RISCV64

// archCalls are calls that go by another number or exist only here.
var archCalls = []Call{
	allow(unix.SYS_NEWFSTATAT, "newfstatat", "path_filestat_get; "+whyEntry),
	allow(unix.SYS_FADVISE64, "fadvise64", "fd_advise"),
	allow(unix.SYS_RISCV_FLUSH_ICACHE, "riscv_flush_icache", "machine code, until it is loaded"),
	allow(unix.SYS_RISCV_HWPROBE, "riscv_hwprobe", "the Go runtime: what the CPU can do"),
}

// mapCalls can make memory executable; the protection is their third argument.
var mapCalls = []call{{unix.SYS_MMAP, "mmap"}}
