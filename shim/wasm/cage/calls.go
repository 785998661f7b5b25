package cage

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Reasons that many calls share.
const (
	whyRuntime = "the Go runtime: threads, memory, signals"
	whyPoller  = "the Go runtime's poller, poll_oneoff"
	whyClocks  = "clock_time_get, clock_res_get, sleeping"
	whyFiles   = "WASI's file calls on descriptors and beneath preopens"
	whySockets = "WASI's socket calls"
	whyNever   = "no honest guest process ever does this"
)

// call is a number with its name.
type call struct {
	nr   uintptr
	name string
}

func allow(nr uintptr, name, why string) Call {
	return Call{Nr: nr, Name: name, Why: why, Then: Allow}
}

// runtimeCalls is what any Go program needs once it runs.
func runtimeCalls() []Call {
	self := []Cond{{Arg: 0, In: []uint32{uint32(os.Getpid())}}}
	return []Call{
		allow(unix.SYS_FUTEX, "futex", whyRuntime),
		allow(unix.SYS_READ, "read", whyFiles),
		allow(unix.SYS_WRITE, "write", whyFiles),
		allow(unix.SYS_CLOSE, "close", whyFiles),
		allow(unix.SYS_NANOSLEEP, "nanosleep", whyRuntime),
		allow(unix.SYS_EPOLL_PWAIT, "epoll_pwait", whyPoller),
		allow(unix.SYS_EPOLL_CTL, "epoll_ctl", whyPoller),
		allow(unix.SYS_EPOLL_CREATE1, "epoll_create1", whyPoller),
		allow(unix.SYS_EVENTFD2, "eventfd2", whyPoller),
		allow(unix.SYS_PIPE2, "pipe2", whyPoller),
		allow(unix.SYS_PPOLL, "ppoll", whyPoller),
		allow(unix.SYS_SCHED_YIELD, "sched_yield", whyRuntime),
		allow(unix.SYS_MADVISE, "madvise", whyRuntime),
		allow(unix.SYS_MUNMAP, "munmap", whyRuntime),
		allow(unix.SYS_MINCORE, "mincore", whyRuntime),
		allow(unix.SYS_BRK, "brk", whyRuntime),
		allow(unix.SYS_RT_SIGACTION, "rt_sigaction", whyRuntime),
		allow(unix.SYS_RT_SIGPROCMASK, "rt_sigprocmask", whyRuntime),
		allow(unix.SYS_RT_SIGRETURN, "rt_sigreturn", whyRuntime),
		allow(unix.SYS_SIGALTSTACK, "sigaltstack", whyRuntime),
		allow(unix.SYS_RESTART_SYSCALL, "restart_syscall", whyRuntime),
		allow(unix.SYS_GETTID, "gettid", whyRuntime),
		allow(unix.SYS_GETPID, "getpid", whyRuntime),
		allow(unix.SYS_SCHED_GETAFFINITY, "sched_getaffinity", whyRuntime),
		allow(unix.SYS_SET_ROBUST_LIST, "set_robust_list", whyRuntime),
		allow(unix.SYS_RSEQ, "rseq", whyRuntime),
		allow(unix.SYS_EXIT, "exit", whyRuntime),
		allow(unix.SYS_EXIT_GROUP, "exit_group", "the end"),
		allow(unix.SYS_GETRANDOM, "getrandom", "random_get, hash seeds"),
		allow(unix.SYS_GETRUSAGE, "getrusage", "CPU time used before _start; process clocks"),
		allow(unix.SYS_CLOCK_GETTIME, "clock_gettime", whyClocks),
		allow(unix.SYS_CLOCK_GETRES, "clock_getres", whyClocks),
		allow(unix.SYS_CLOCK_NANOSLEEP, "clock_nanosleep", whyClocks),
		// Threads of this process and nothing else; clone3 hides its flags behind a pointer.
		{Nr: unix.SYS_CLONE, Name: "clone", Why: "threads", Then: Allow, Otherwise: Kill,
			When: []Cond{{Arg: 0, Mask: unix.CLONE_THREAD, In: []uint32{unix.CLONE_THREAD}}}},
		{Nr: unix.SYS_CLONE3, Name: "clone3", Why: "libc falls back to clone", Then: Errno(unix.ENOSYS)},
		// Preemption signals go to threads of this process only.
		{Nr: unix.SYS_TGKILL, Name: "tgkill", Why: "preemption", When: self, Then: Allow, Otherwise: Errno(unix.EPERM)},
		// The Go runtime names its mappings and goes on when it may not.
		{Nr: unix.SYS_PRCTL, Name: "prctl", Why: "naming mappings", Then: Errno(unix.EINVAL)},
		{Nr: unix.SYS_PRLIMIT64, Name: "prlimit64", Why: "reading own limits, not setting them", Then: Allow, Otherwise: Errno(unix.EPERM),
			When: []Cond{{Arg: 0, In: []uint32{0}}, {Arg: 2, In: []uint32{0}}}},
	}
}

// codeCalls make mappings, executable ones too: until the module is loaded.
func codeCalls() []Call {
	calls := []Call{allow(unix.SYS_MPROTECT, "mprotect", whyRuntime)}
	for _, m := range mapCalls {
		calls = append(calls, allow(m.nr, m.name, whyRuntime))
	}
	return calls
}

// fileCalls is what WASI does with files. What has a path goes through openat2 beneath a preopen in our host;
// the *at calls get the directory it opened and one last name.
func fileCalls() []Call {
	return append([]Call{
		allow(unix.SYS_OPENAT, "openat", "the compiled entry"),
		allow(unix.SYS_OPENAT2, "openat2", "every path of the guest"),
		allow(unix.SYS_READV, "readv", whyFiles),
		allow(unix.SYS_WRITEV, "writev", whyFiles),
		allow(unix.SYS_PREAD64, "pread64", whyFiles),
		allow(unix.SYS_PWRITE64, "pwrite64", whyFiles),
		allow(unix.SYS_PREADV, "preadv", whyFiles),
		allow(unix.SYS_PWRITEV, "pwritev", whyFiles),
		allow(unix.SYS_PREADV2, "preadv2", whyFiles),
		allow(unix.SYS_PWRITEV2, "pwritev2", whyFiles),
		allow(unix.SYS_LSEEK, "lseek", whyFiles),
		allow(unix.SYS_FSTAT, "fstat", whyFiles),
		allow(unix.SYS_STATX, "statx", whyFiles),
		allow(unix.SYS_FACCESSAT2, "faccessat2", whyFiles),
		allow(unix.SYS_FACCESSAT, "faccessat", whyFiles),
		allow(unix.SYS_GETDENTS64, "getdents64", whyFiles),
		allow(unix.SYS_FCNTL, "fcntl", whyFiles),
		allow(unix.SYS_DUP, "dup", whyFiles),
		allow(unix.SYS_DUP3, "dup3", whyFiles),
		allow(unix.SYS_FSYNC, "fsync", whyFiles),
		allow(unix.SYS_FDATASYNC, "fdatasync", whyFiles),
		allow(unix.SYS_FTRUNCATE, "ftruncate", whyFiles),
		allow(unix.SYS_FALLOCATE, "fallocate", whyFiles),
		allow(unix.SYS_MKDIRAT, "mkdirat", whyFiles),
		allow(unix.SYS_UNLINKAT, "unlinkat", whyFiles),
		allow(unix.SYS_RENAMEAT2, "renameat2", whyFiles),
		allow(unix.SYS_LINKAT, "linkat", whyFiles),
		allow(unix.SYS_SYMLINKAT, "symlinkat", whyFiles),
		allow(unix.SYS_READLINKAT, "readlinkat", whyFiles),
		allow(unix.SYS_UTIMENSAT, "utimensat", whyFiles),
		allow(unix.SYS_FLOCK, "flock", whyFiles),
		allow(unix.SYS_FSTATFS, "fstatfs", whyFiles),
		allow(unix.SYS_COPY_FILE_RANGE, "copy_file_range", whyFiles),
		{Nr: unix.SYS_IOCTL, Name: "ioctl", Why: "is it a terminal, how much is there to read", Then: Allow, Otherwise: Errno(unix.ENOTTY),
			When: []Cond{{Arg: 1, In: []uint32{unix.TCGETS, unix.TIOCGWINSZ, unix.TIOCINQ}}}},
	}, archCalls...)
}

// socketCalls is what WASI does with sockets: TCP and UDP, nothing else.
func socketCalls() []Call {
	return []Call{
		{Nr: unix.SYS_SOCKET, Name: "socket", Why: whySockets, Then: Allow, Otherwise: Errno(unix.EAFNOSUPPORT),
			When: []Cond{
				{Arg: 0, In: []uint32{unix.AF_INET, unix.AF_INET6}},
				{Arg: 1, Mask: 0xf, In: []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}},
			}},
		allow(unix.SYS_ACCEPT4, "accept4", whySockets),
		allow(unix.SYS_BIND, "bind", whySockets),
		allow(unix.SYS_LISTEN, "listen", whySockets),
		allow(unix.SYS_CONNECT, "connect", whySockets),
		allow(unix.SYS_GETSOCKNAME, "getsockname", whySockets),
		allow(unix.SYS_GETPEERNAME, "getpeername", whySockets),
		allow(unix.SYS_SETSOCKOPT, "setsockopt", whySockets),
		allow(unix.SYS_GETSOCKOPT, "getsockopt", whySockets),
		allow(unix.SYS_SENDTO, "sendto", whySockets),
		allow(unix.SYS_RECVFROM, "recvfrom", whySockets),
		allow(unix.SYS_SENDMSG, "sendmsg", whySockets),
		allow(unix.SYS_RECVMSG, "recvmsg", whySockets),
		allow(unix.SYS_SHUTDOWN, "shutdown", whySockets),
	}
}

// neverCalls end the process: whoever makes one has taken it over.
func neverCalls() []Call {
	var calls []Call
	for _, c := range []call{
		{unix.SYS_EXECVE, "execve"}, {unix.SYS_EXECVEAT, "execveat"},
		{unix.SYS_PTRACE, "ptrace"}, {unix.SYS_PROCESS_VM_READV, "process_vm_readv"}, {unix.SYS_PROCESS_VM_WRITEV, "process_vm_writev"},
		{unix.SYS_MOUNT, "mount"}, {unix.SYS_UMOUNT2, "umount2"}, {unix.SYS_PIVOT_ROOT, "pivot_root"}, {unix.SYS_CHROOT, "chroot"},
		{unix.SYS_OPEN_TREE, "open_tree"}, {unix.SYS_MOVE_MOUNT, "move_mount"}, {unix.SYS_FSOPEN, "fsopen"},
		{unix.SYS_FSMOUNT, "fsmount"}, {unix.SYS_MOUNT_SETATTR, "mount_setattr"},
		{unix.SYS_SETNS, "setns"}, {unix.SYS_UNSHARE, "unshare"},
		{unix.SYS_INIT_MODULE, "init_module"}, {unix.SYS_FINIT_MODULE, "finit_module"}, {unix.SYS_KEXEC_LOAD, "kexec_load"},
		{unix.SYS_BPF, "bpf"}, {unix.SYS_PERF_EVENT_OPEN, "perf_event_open"}, {unix.SYS_USERFAULTFD, "userfaultfd"},
		{unix.SYS_IO_URING_SETUP, "io_uring_setup"}, {unix.SYS_KEYCTL, "keyctl"}, {unix.SYS_ADD_KEY, "add_key"},
		{unix.SYS_OPEN_BY_HANDLE_AT, "open_by_handle_at"}, {unix.SYS_NAME_TO_HANDLE_AT, "name_to_handle_at"},
		{unix.SYS_PIDFD_OPEN, "pidfd_open"}, {unix.SYS_PIDFD_GETFD, "pidfd_getfd"}, {unix.SYS_MKNODAT, "mknodat"},
	} {
		calls = append(calls, Call{Nr: c.nr, Name: c.name, Why: whyNever, Then: Kill})
	}
	return calls
}

// GuestCalls is the list a guest process lives under from before it reads the module to its end.
func GuestCalls() []Call {
	seccomp := []Call{allow(unix.SYS_SECCOMP, "seccomp", "SealCalls: a further list only takes away")}
	return slices.Concat(runtimeCalls(), seccomp, codeCalls(), fileCalls(), socketCalls(), neverCalls())
}

// CompileCalls is the list the compile child lives under: no sockets.
func CompileCalls() []Call {
	return slices.Concat(runtimeCalls(), codeCalls(), fileCalls(), neverCalls())
}

// SealCalls forbids new executable memory and new mappings of files: it is added when the module is
// loaded. Everything else is left to the list before it.
func SealCalls() []Call {
	const protection = 2 // third argument of mmap and mprotect alike
	calls := []Call{{Nr: unix.SYS_SECCOMP, Name: "seccomp", Why: "this is the last list", Then: Kill}}
	for _, m := range append([]call{{unix.SYS_MPROTECT, "mprotect"}}, mapCalls...) {
		calls = append(calls, Call{Nr: m.nr, Name: m.name, Why: "code is loaded", Then: Allow, Otherwise: Kill,
			When: []Cond{{Arg: protection, Mask: unix.PROT_EXEC, In: []uint32{0}}}})
	}
	return calls
}
