package cage

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Reasons that many calls share.
const (
	whyThreads = "the Go runtime: threads and their scheduling"
	whyMemory  = "the Go runtime: memory"
	whySignals = "the Go runtime: signals"
	whySleep   = "the Go runtime: sleeping; poll_oneoff"
	whyPoller  = "the Go runtime's poller; poll_oneoff"
	whyEntry   = "the compiled entry"
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
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	return []Call{
		allow(unix.SYS_FUTEX, "futex", whyThreads),
		allow(unix.SYS_SCHED_YIELD, "sched_yield", whyThreads),
		allow(unix.SYS_GETTID, "gettid", whyThreads),
		allow(unix.SYS_GETPID, "getpid", whyThreads),
		allow(unix.SYS_SCHED_GETAFFINITY, "sched_getaffinity", whyThreads),
		allow(unix.SYS_EXIT, "exit", whyThreads),
		allow(unix.SYS_EXIT_GROUP, "exit_group", "the end"),
		allow(unix.SYS_MADVISE, "madvise", whyMemory),
		allow(unix.SYS_MUNMAP, "munmap", whyMemory),
		allow(unix.SYS_RT_SIGACTION, "rt_sigaction", whySignals),
		allow(unix.SYS_RT_SIGPROCMASK, "rt_sigprocmask", whySignals),
		allow(unix.SYS_RT_SIGRETURN, "rt_sigreturn", whySignals),
		allow(unix.SYS_SIGALTSTACK, "sigaltstack", whySignals),
		allow(unix.SYS_RESTART_SYSCALL, "restart_syscall", "the kernel: what a pause of the container interrupted"),
		allow(unix.SYS_NANOSLEEP, "nanosleep", whySleep),
		allow(unix.SYS_CLOCK_NANOSLEEP, "clock_nanosleep", whySleep),
		allow(unix.SYS_CLOCK_GETTIME, "clock_gettime", "clock_time_get"),
		allow(unix.SYS_CLOCK_GETRES, "clock_getres", "clock_res_get"),
		allow(unix.SYS_GETRUSAGE, "getrusage", "CPU time used before _start"),
		allow(unix.SYS_GETRANDOM, "getrandom", "random_get; the Go runtime's seeds"),
		allow(unix.SYS_EPOLL_PWAIT, "epoll_pwait", whyPoller),
		allow(unix.SYS_EPOLL_CTL, "epoll_ctl", whyPoller),
		allow(unix.SYS_EPOLL_CREATE1, "epoll_create1", whyPoller),
		allow(unix.SYS_EVENTFD2, "eventfd2", whyPoller),
		allow(unix.SYS_PPOLL, "ppoll", "waiting for one descriptor"),
		// Threads of this process and nothing else; clone3 hides its flags behind a pointer.
		{Nr: unix.SYS_CLONE, Name: "clone", Why: whyThreads, Then: Allow, Otherwise: Kill,
			When: []Cond{{Arg: 0, Mask: unix.CLONE_THREAD | namespaces, In: []uint32{unix.CLONE_THREAD}}}},
		{Nr: unix.SYS_CLONE3, Name: "clone3", Why: "what asks falls back to clone", Then: Errno(unix.ENOSYS)},
		// Preemption signals go to threads of this process only.
		{Nr: unix.SYS_TGKILL, Name: "tgkill", Why: "the Go runtime: preemption", When: self, Then: Allow, Otherwise: Errno(unix.EPERM)},
		// The Go runtime names its mappings and continues when it may not.
		{Nr: unix.SYS_PRCTL, Name: "prctl", Why: "the Go runtime names its mappings, or does not", Then: Errno(unix.EINVAL)},
		{Nr: unix.SYS_PRLIMIT64, Name: "prlimit64", Why: "reading own limits, not setting them", Then: Allow, Otherwise: Errno(unix.EPERM),
			When: []Cond{{Arg: 0, In: []uint32{0}}, {Arg: 2, In: []uint32{0}}}},
	}
}

// codeCalls make mappings, executable ones too: until the module is loaded.
func codeCalls() []Call {
	calls := []Call{allow(unix.SYS_MPROTECT, "mprotect", "machine code, until it is loaded; memory.grow")}
	for _, m := range mapCalls {
		calls = append(calls, allow(m.nr, m.name, "machine code, until it is loaded; the Go runtime: memory"))
	}
	return calls
}

// fileCalls is what WASI does with files. Whatever has a path is opened by openat2 beneath a
// preopen in our host; the *at calls get the directory it opened and one last name.
func fileCalls() []Call {
	return append([]Call{
		allow(unix.SYS_READ, "read", "fd_read"),
		allow(unix.SYS_WRITE, "write", "fd_write; the link to the engine"),
		allow(unix.SYS_CLOSE, "close", "fd_close, and what was opened on the way"),
		allow(unix.SYS_OPENAT, "openat", whyEntry+"; path_open on kernels without openat2"),
		allow(unix.SYS_OPENAT2, "openat2", "path_open, and every path of more than one component"),
		allow(unix.SYS_READV, "readv", "fd_read"),
		allow(unix.SYS_WRITEV, "writev", "fd_write"),
		allow(unix.SYS_PREAD64, "pread64", whyEntry+"; the Go runtime: limits of CPU time"),
		allow(unix.SYS_PREADV, "preadv", "fd_pread"),
		allow(unix.SYS_PWRITEV, "pwritev", "fd_pwrite"),
		allow(unix.SYS_LSEEK, "lseek", "fd_seek, fd_tell, fd_readdir"),
		allow(unix.SYS_FSTAT, "fstat", "fd_filestat_get, path_open"),
		allow(unix.SYS_GETDENTS64, "getdents64", "fd_readdir"),
		fcntl(unix.SYS_FCNTL, "fcntl"),
		allow(unix.SYS_FSYNC, "fsync", "fd_sync; writes with SYNC"),
		allow(unix.SYS_FDATASYNC, "fdatasync", "fd_datasync; writes with DSYNC"),
		allow(unix.SYS_FTRUNCATE, "ftruncate", "fd_filestat_set_size"),
		allow(unix.SYS_FALLOCATE, "fallocate", "fd_allocate"),
		allow(unix.SYS_MKDIRAT, "mkdirat", "path_create_directory"),
		allow(unix.SYS_UNLINKAT, "unlinkat", "path_unlink_file, path_remove_directory"),
		allow(unix.SYS_RENAMEAT2, "renameat2", "path_rename"),
		allow(unix.SYS_LINKAT, "linkat", "path_link"),
		allow(unix.SYS_SYMLINKAT, "symlinkat", "path_symlink"),
		allow(unix.SYS_READLINKAT, "readlinkat", "path_readlink; paths on kernels without openat2"),
		allow(unix.SYS_UTIMENSAT, "utimensat", "fd_filestat_set_times, path_filestat_set_times"),
		allow(unix.SYS_FSTATFS, "fstatfs", "path_open: procfs is refused"),
		{Nr: unix.SYS_IOCTL, Name: "ioctl", Why: "is it a terminal, how much is there to read", Then: Allow, Otherwise: Errno(unix.ENOTTY),
			When: []Cond{{Arg: 1, In: []uint32{unix.TCGETS, unix.TIOCGWINSZ, unix.TIOCINQ}}}},
	}, archCalls...)
}

// fcntl copies descriptors and reads and sets their flags: no locks, no leases on files of others,
// no signals.
func fcntl(nr uintptr, name string) Call {
	return Call{Nr: nr, Name: name, Why: "fd_fdstat_set_flags; standard streams", Then: Allow, Otherwise: Errno(unix.EINVAL),
		When: []Cond{{Arg: 1, In: []uint32{unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL}}}}
}

// socketCalls is what WASI does with sockets: TCP and UDP, nothing else. The kernel loads modules
// for protocols that it is asked for, and for some options.
func socketCalls() []Call {
	return []Call{
		{Nr: unix.SYS_SOCKET, Name: "socket", Why: "sock_open, sock_getaddrinfo", Then: Allow, Otherwise: Errno(unix.EAFNOSUPPORT),
			When: []Cond{
				{Arg: 0, In: []uint32{unix.AF_INET, unix.AF_INET6}},
				{Arg: 1, Mask: 0xf, In: []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}},
				{Arg: 2, In: []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}},
			}},
		allow(unix.SYS_ACCEPT4, "accept4", "sock_accept"),
		allow(unix.SYS_BIND, "bind", "sock_bind"),
		allow(unix.SYS_LISTEN, "listen", "sock_listen"),
		allow(unix.SYS_CONNECT, "connect", "sock_connect, sock_getaddrinfo"),
		allow(unix.SYS_GETSOCKNAME, "getsockname", "sock_getlocaladdr"),
		allow(unix.SYS_GETPEERNAME, "getpeername", "sock_getpeeraddr"),
		{Nr: unix.SYS_SETSOCKOPT, Name: "setsockopt", Why: "sock_setsockopt; connections without delay; hop limits", Then: Allow, Otherwise: Errno(unix.ENOPROTOOPT),
			When: []Cond{
				{Arg: 1, In: []uint32{unix.SOL_SOCKET, unix.IPPROTO_TCP}},
				{Arg: 2, In: []uint32{unix.TCP_NODELAY, unix.SO_REUSEADDR, unix.SO_TYPE, unix.SO_ERROR, unix.SO_DONTROUTE, unix.SO_BROADCAST,
					unix.SO_SNDBUF, unix.SO_RCVBUF, unix.SO_KEEPALIVE, unix.SO_OOBINLINE, unix.SO_LINGER, unix.SO_RCVLOWAT,
					unix.SO_ACCEPTCONN, unix.SO_BINDTODEVICE}},
			},
			Or: [][]Cond{
				{{Arg: 1, In: []uint32{unix.IPPROTO_IP}}, {Arg: 2, In: []uint32{unix.IP_TTL}}},
				{{Arg: 1, In: []uint32{unix.IPPROTO_IPV6}}, {Arg: 2, In: []uint32{unix.IPV6_V6ONLY, unix.IPV6_UNICAST_HOPS}}},
			}},
		allow(unix.SYS_GETSOCKOPT, "getsockopt", "sock_getsockopt, sock_connect"),
		allow(unix.SYS_RECVMSG, "recvmsg", "sock_recv, sock_recv_from, fd_read; the link to the engine"),
		allow(unix.SYS_SENDMSG, "sendmsg", "sock_send, sock_send_to, fd_write"),
		allow(unix.SYS_SHUTDOWN, "shutdown", "sock_shutdown"),
	}
}

// neverCalls end the process: whoever makes one has taken it over.
func neverCalls() []Call {
	var calls []Call
	for _, c := range []call{
		{unix.SYS_EXECVE, "execve"}, {unix.SYS_EXECVEAT, "execveat"},
		{unix.SYS_PTRACE, "ptrace"}, {unix.SYS_PROCESS_VM_READV, "process_vm_readv"}, {unix.SYS_PROCESS_VM_WRITEV, "process_vm_writev"},
		{unix.SYS_MOUNT, "mount"}, {unix.SYS_UMOUNT2, "umount2"}, {unix.SYS_PIVOT_ROOT, "pivot_root"}, {unix.SYS_CHROOT, "chroot"},
		{unix.SYS_OPEN_TREE, "open_tree"}, {unix.SYS_MOVE_MOUNT, "move_mount"}, {unix.SYS_FSOPEN, "fsopen"}, {unix.SYS_FSCONFIG, "fsconfig"},
		{unix.SYS_FSMOUNT, "fsmount"}, {unix.SYS_FSPICK, "fspick"}, {unix.SYS_MOUNT_SETATTR, "mount_setattr"},
		{unix.SYS_SETNS, "setns"}, {unix.SYS_UNSHARE, "unshare"},
		{unix.SYS_INIT_MODULE, "init_module"}, {unix.SYS_FINIT_MODULE, "finit_module"}, {unix.SYS_KEXEC_LOAD, "kexec_load"},
		{unix.SYS_BPF, "bpf"}, {unix.SYS_PERF_EVENT_OPEN, "perf_event_open"}, {unix.SYS_USERFAULTFD, "userfaultfd"},
		{unix.SYS_IO_URING_SETUP, "io_uring_setup"}, {unix.SYS_IO_URING_ENTER, "io_uring_enter"}, {unix.SYS_IO_URING_REGISTER, "io_uring_register"},
		{unix.SYS_KEYCTL, "keyctl"}, {unix.SYS_ADD_KEY, "add_key"}, {unix.SYS_REQUEST_KEY, "request_key"},
		{unix.SYS_OPEN_BY_HANDLE_AT, "open_by_handle_at"}, {unix.SYS_NAME_TO_HANDLE_AT, "name_to_handle_at"},
		{unix.SYS_PIDFD_OPEN, "pidfd_open"}, {unix.SYS_PIDFD_GETFD, "pidfd_getfd"},
		{unix.SYS_PIDFD_SEND_SIGNAL, "pidfd_send_signal"}, {unix.SYS_MKNODAT, "mknodat"},
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
