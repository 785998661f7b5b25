package cage

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_ARM

// armCacheFlush is one of the architecture's private calls, which x/sys does not list.
const armCacheFlush = 0x0f0002

// archCalls are calls that go by another number or exist only here.
var archCalls = []Call{
	allow(unix.SYS_FSTAT64, "fstat64", "fd_filestat_get, path_open"),
	allow(unix.SYS_FSTATAT64, "fstatat64", "path_filestat_get; "+whyEntry),
	allow(unix.SYS_FSTATFS64, "fstatfs64", "path_open: procfs is refused"),
	allow(unix.SYS__LLSEEK, "_llseek", "fd_seek, fd_tell, fd_readdir"),
	allow(unix.SYS_FTRUNCATE64, "ftruncate64", "fd_filestat_set_size"),
	fcntl(unix.SYS_FCNTL64, "fcntl64"),
	allow(unix.SYS_ARM_FADVISE64_64, "arm_fadvise64_64", "fd_advise"),
	allow(unix.SYS_RENAMEAT, "renameat", "path_rename"),
	allow(unix.SYS_UTIMENSAT_TIME64, "utimensat_time64", "fd_filestat_set_times, path_filestat_set_times"),
	allow(unix.SYS_PPOLL_TIME64, "ppoll_time64", "waiting for one descriptor"),
	allow(unix.SYS_FUTEX_TIME64, "futex_time64", whyThreads),
	allow(unix.SYS_CLOCK_GETTIME64, "clock_gettime64", "clock_time_get"),
	allow(unix.SYS_CLOCK_GETRES_TIME64, "clock_getres_time64", "clock_res_get"),
	allow(unix.SYS_CLOCK_NANOSLEEP_TIME64, "clock_nanosleep_time64", whySleep),
	allow(unix.SYS_SIGRETURN, "sigreturn", whySignals),
	allow(unix.SYS_UGETRLIMIT, "ugetrlimit", "reading own limits"),
	allow(armCacheFlush, "cacheflush", "machine code, until it is loaded"),
}

// mapCalls can make memory executable; the protection is their third argument.
var mapCalls = []call{{unix.SYS_MMAP2, "mmap2"}}
