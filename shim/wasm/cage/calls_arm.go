package cage

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_ARM

// armCacheFlush is one of the architecture's private calls, which x/sys does not list.
const armCacheFlush = 0x0f0002

// archCalls are calls that go by another number or exist only here.
var archCalls = []Call{
	allow(unix.SYS_FSTAT64, "fstat64", whyFiles),
	allow(unix.SYS_FSTATAT64, "fstatat64", whyFiles),
	allow(unix.SYS__LLSEEK, "_llseek", whyFiles),
	allow(unix.SYS_FTRUNCATE64, "ftruncate64", whyFiles),
	allow(unix.SYS_FCNTL64, "fcntl64", whyFiles),
	allow(unix.SYS_ARM_FADVISE64_64, "arm_fadvise64_64", whyFiles),
	allow(unix.SYS_RENAMEAT, "renameat", whyFiles),
	allow(unix.SYS_SENDFILE64, "sendfile64", whyFiles),
	allow(unix.SYS_UTIMENSAT_TIME64, "utimensat_time64", whyFiles),
	allow(unix.SYS_EPOLL_WAIT, "epoll_wait", whyPoller),
	allow(unix.SYS_POLL, "poll", whyPoller),
	allow(unix.SYS_PPOLL_TIME64, "ppoll_time64", whyPoller),
	allow(unix.SYS_DUP2, "dup2", whyFiles),
	allow(unix.SYS_FUTEX_TIME64, "futex_time64", whyRuntime),
	allow(unix.SYS_CLOCK_GETTIME64, "clock_gettime64", whyClocks),
	allow(unix.SYS_CLOCK_GETRES_TIME64, "clock_getres_time64", whyClocks),
	allow(unix.SYS_CLOCK_NANOSLEEP_TIME64, "clock_nanosleep_time64", whyClocks),
	allow(unix.SYS_SIGRETURN, "sigreturn", whyRuntime),
	allow(unix.SYS_UGETRLIMIT, "ugetrlimit", whyRuntime),
	allow(armCacheFlush, "cacheflush", whyRuntime),
}

// mapCalls can make memory executable; the protection is their third argument.
var mapCalls = []call{{unix.SYS_MMAP2, "mmap2"}}
