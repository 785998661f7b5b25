package engine

import (
	"errors"
	"os"
	"path"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is one thing that a process that its guest has taken over tries, with what must come of
// it.
type attempt struct {
	name string
	try  func(f facts) error
	want string
	// Of two that are parted by | either. What must come of it instead while the module is read,
	// and in a further process.
	loading, further string
}

// call tries a system call with these arguments.
func call(nr uintptr, args ...uintptr) func(facts) error {
	return func(facts) error { return raw(nr, args...) }
}

func raw(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return errno
}

// here is the address of some memory, for calls that want one.
func here() uintptr { return uintptr(unsafe.Pointer(&scratch[0])) }

var scratch [4096]byte

func open(name string, flags int) func(facts) error {
	return func(facts) error { return tryOpen(name, flags) }
}

func tryOpen(name string, flags int) error {
	fd, err := unix.Open(name, flags, 0o666)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func socket(family, kind, protocol int) func(facts) error {
	return func(facts) error {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func setsockopt(level, name int) func(facts) error {
	return func(facts) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.SetsockoptInt(fd, level, name, 1)
	}
}

// attempts are all that is tried, by what they are after.
func attempts() (all []attempt) {
	for _, some := range [][]attempt{fileAttempts(), treeAttempts(), processAttempts(), socketAttempts(), privilegeAttempts(), kernelAttempts(), codeAttempts()} {
		all = append(all, some...)
	}
	return append(all, machineAttempts()...)
}

const minusOne = ^uintptr(0)

// fileAttempts are after files. The root of a first process holds the container's tree and the
// compiled module, that of a further process is the compiled module.
func fileAttempts() []attempt {
	read := unix.O_RDONLY
	socketFile := ok // what it makes in its volume is its own affair
	if v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno == 0 && v >= 2 {
		socketFile = "EACCES"
	}
	return []attempt{
		// What is its own, so that the rest means something.
		{name: "own file", try: open("/rootfs/app.wasm", read), want: ok, further: "ENOENT"},
		{name: "own volume", try: open("/rootfs/volume/f", unix.O_RDWR|unix.O_CREAT), want: ok, further: "ENOENT"},

		{name: "host file", try: func(f facts) error { return tryOpen(f.Secret, read) }, want: "ENOENT"},
		{name: "write host file", try: func(f facts) error { return tryOpen(f.Secret, unix.O_WRONLY|unix.O_CREAT) }, want: "ENOENT"},
		{name: "host file by dots", try: func(f facts) error { return tryOpen("/.."+strings.Repeat("/..", 8)+f.Secret, read) }, want: "ENOENT"},
		{name: "host file from its tree", try: fromTree("../../../etc/passwd"), want: "ENOENT"},
		{name: "its root", try: listRoot, want: ok},
		{name: "own memory", try: open("/proc/self/mem", unix.O_RDWR), want: "ENOENT"},
		{name: "other process", try: open("/proc/1/root/etc/passwd", read), want: "ENOENT"},
		{name: "own cgroup", try: func(f facts) error {
			return tryOpen(path.Join("/sys/fs/cgroup/memory", f.Cgroup, "memory.limit_in_bytes"), unix.O_WRONLY)
		}, want: "ENOENT"},
		{name: "cgroup in its tree", try: fromTree("sys/fs/cgroup"), want: "ENOENT"},
		{name: "devices", try: open("/dev/mem", read), want: "ENOENT"},
		{name: "terminal", try: open("/dev/tty", unix.O_RDWR), want: "ENOENT"},
		{name: "device of its image", try: fromTree("zero"), want: "EACCES"},
		{name: "procfs of the host, its own memory", try: fromTree("host-proc/self/mem"), want: "EACCES"},
		{name: "procfs of the host, another's root", try: func(f facts) error {
			return fromTree("host-proc/" + strconv.Itoa(f.Pid) + "/root/etc/passwd")(f)
		}, want: "EACCES"},
		{name: "procfs of the host, another's environment", try: func(f facts) error {
			return fromTree("host-proc/" + strconv.Itoa(f.Pid) + "/environ")(f)
		}, want: "EACCES"},
		{name: "procfs of the host, switch", try: fromTreeFor("host-proc/sys/kernel/hostname", unix.O_WRONLY), want: "EACCES|EROFS"},
		{name: "compiled module", try: open("/cache/module.wasm", unix.O_WRONLY), want: "EACCES|EROFS", further: "ENOENT"},
		{name: "compiled module of a further process", try: open("/module.wasm", unix.O_WRONLY), want: "ENOENT", further: "EACCES|EROFS"},
		{name: "socket file", try: func(facts) error { return unix.Bind(3, &unix.SockaddrUnix{Name: "/rootfs/volume/socket"}) }, want: socketFile, further: "ENOENT"},
		{name: "change mode", try: call(unix.SYS_FCHMODAT, minusOne, here(), 0o777), want: "ENOSYS"},
		{name: "change owner", try: call(unix.SYS_FCHOWNAT, minusOne, here(), 0, 0, 0), want: "ENOSYS"},
		{name: "extended attribute", try: call(unix.SYS_SETXATTR, here(), here(), here(), 1, 0), want: "ENOSYS"},
		{name: "lease", try: call(unix.SYS_FCNTL, 0, unix.F_SETLEASE, unix.F_RDLCK), want: "EINVAL"},
		{name: "lock", try: call(unix.SYS_FCNTL, 0, unix.F_SETLK, here()), want: "EINVAL"},
		{name: "watch", try: call(unix.SYS_INOTIFY_INIT1, 0), want: "ENOSYS"},
		{name: "fanotify", try: call(unix.SYS_FANOTIFY_INIT, 0, 0), want: "ENOSYS"},
		{name: "file by handle", try: call(unix.SYS_OPEN_BY_HANDLE_AT, 0, here(), 0), want: killed},
		{name: "handle of file", try: call(unix.SYS_NAME_TO_HANDLE_AT, 0, here(), here(), here(), 0), want: killed},
		{name: "make device", try: call(unix.SYS_MKNODAT, minusOne, here(), unix.S_IFCHR|0o666, 0x105), want: killed},
	}
}

// fromTree opens a path below the container's tree, which a process has by descriptor too.
func fromTree(name string) func(facts) error { return fromTreeFor(name, unix.O_RDONLY) }

func fromTreeFor(name string, flags int) func(facts) error {
	return func(facts) error {
		for fd := 3; fd < 64; fd++ {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			found, err := unix.Openat(fd, name, flags, 0)
			if err == nil {
				unix.Close(found)
			}
			return err
		}
		return errors.New("there is no directory")
	}
}

// listRoot is nil if the root shows no more than it may: nothing under Landlock.
func listRoot(facts) error {
	dir, err := os.Open("/")
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	sort.Strings(names)
	if got := strings.Join(names, " "); got != "cache rootfs" && !strings.Contains(got, "module.wasm") {
		return errors.New(got)
	}
	return nil
}

// treeAttempts are after mounts and roots.
func treeAttempts() (all []attempt) {
	for name, nr := range map[string]uintptr{
		"mount": unix.SYS_MOUNT, "unmount": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT,
		"open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "fsopen": unix.SYS_FSOPEN, "fsmount": unix.SYS_FSMOUNT,
		"fsconfig": unix.SYS_FSCONFIG, "fspick": unix.SYS_FSPICK, "mount_setattr": unix.SYS_MOUNT_SETATTR,
		"unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS,
	} {
		all = append(all, attempt{name: name, try: call(nr, here(), here(), here(), 0, 0), want: killed})
	}
	all = append(all,
		attempt{name: "new user namespace", try: call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), want: killed},
		attempt{name: "thread in a new namespace", try: call(unix.SYS_CLONE, threadFlags|unix.CLONE_NEWNET), want: killed},
	)
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD

// processAttempts are after other processes.
func processAttempts() []attempt {
	return []attempt{
		{name: "a thread", try: func(facts) error {
			done := make(chan bool)
			go func() { runtime.LockOSThread(); done <- true }()
			<-done
			return nil
		}, want: ok},
		{name: "fork", try: call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)), want: killed},
		{name: "clone3", try: call(unix.SYS_CLONE3, here(), 88), want: "ENOSYS"},
		{name: "execute", try: func(facts) error { return unix.Exec("/rootfs/sh", []string{"sh"}, nil) }, want: killed},
		{name: "execute by descriptor", try: call(unix.SYS_EXECVEAT, 0, here(), 0, 0, unix.AT_EMPTY_PATH), want: killed},
		{name: "trace", try: func(f facts) error { return unix.PtraceAttach(f.Pid) }, want: killed},
		{name: "be traced", try: call(unix.SYS_PTRACE, unix.PTRACE_TRACEME), want: killed},
		{name: "read memory", try: func(f facts) error { return raw(unix.SYS_PROCESS_VM_READV, uintptr(f.Pid), here(), 1, here(), 1) }, want: killed},
		{name: "write memory", try: func(f facts) error { return raw(unix.SYS_PROCESS_VM_WRITEV, uintptr(f.Pid), here(), 1, here(), 1) }, want: killed},
		{name: "kill", try: func(f facts) error { return unix.Kill(f.Pid, unix.SIGKILL) }, want: "ENOSYS"},
		{name: "kill its namespace's first", try: func(facts) error { return unix.Kill(1, 0) }, want: "ENOSYS"},
		{name: "kill all", try: func(facts) error { return unix.Kill(-1, 0) }, want: "ENOSYS"},
		{name: "kill thread", try: func(f facts) error { return unix.Tgkill(f.Pid, f.Pid, unix.SIGKILL) }, want: "EPERM"},
		{name: "queue signal", try: func(f facts) error { return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(f.Pid), 9, here()) }, want: "ENOSYS"},
		{name: "signal by descriptor owner", try: call(unix.SYS_FCNTL, 0, unix.F_SETOWN, 1), want: "EINVAL"},
		{name: "process by descriptor", try: func(f facts) error { return raw(unix.SYS_PIDFD_OPEN, uintptr(f.Pid), 0) }, want: killed},
		{name: "signal by descriptor", try: call(unix.SYS_PIDFD_SEND_SIGNAL, 0, 9), want: killed},
		{name: "descriptor of another", try: call(unix.SYS_PIDFD_GETFD, 0, 0, 0), want: killed},
		{name: "limits of another", try: func(f facts) error { return raw(unix.SYS_PRLIMIT64, uintptr(f.Pid), unix.RLIMIT_NOFILE, 0, here()) }, want: "EPERM"},
		{name: "compare with another", try: func(f facts) error { return raw(unix.SYS_KCMP, uintptr(f.Pid), 1) }, want: "ENOSYS"},
		{name: "shared memory", try: call(unix.SYS_SHMGET, 1, 4096, 0o1666), want: "ENOSYS"},
		{name: "message queue", try: call(unix.SYS_MQ_OPEN, here(), unix.O_RDWR|unix.O_CREAT, 0o666, 0), want: "ENOSYS"},
	}
}

// socketAttempts are after who listens outside of the pod, and after parts of the kernel that
// guests have no use for.
func socketAttempts() []attempt {
	const refused = "EAFNOSUPPORT"
	all := []attempt{
		{name: "tcp", try: socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP), want: ok},
		{name: "udp", try: socket(unix.AF_INET6, unix.SOCK_DGRAM, 0), want: ok},
		{name: "tcp option", try: setsockopt(unix.IPPROTO_TCP, unix.TCP_NODELAY), want: ok},
		{name: "loopback of the host", try: func(f facts) error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Connect(fd, &unix.SockaddrInet4{Port: f.Port, Addr: [4]byte{127, 0, 0, 1}})
		}, want: "ENETUNREACH"}, // the test's pod has not even a loopback device that is up
		{name: "socket pair", try: call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, here()), want: "ENOSYS"},
		{name: "host's unix socket by its link", try: func(f facts) error { return unix.Connect(3, &unix.SockaddrUnix{Name: "@" + f.Abstract}) }, want: "ECONNREFUSED"},
		{name: "name its link", try: func(f facts) error { return unix.Bind(3, &unix.SockaddrUnix{Name: "@" + f.Free}) }, want: ok},
		{name: "listen on its link", try: func(facts) error { return unix.Listen(3, 1) }, want: "EINVAL"},
	}
	for name, s := range map[string][3]int{
		"unix": {unix.AF_UNIX, unix.SOCK_STREAM, 0}, "unix datagram": {unix.AF_UNIX, unix.SOCK_DGRAM, 0},
		"netlink": {unix.AF_NETLINK, unix.SOCK_RAW, 0}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0x300},
		"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "kernel's crypto": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		"xdp": {unix.AF_XDP, unix.SOCK_RAW, 0}, "key": {unix.AF_KEY, unix.SOCK_RAW, 2}, "can": {unix.AF_CAN, unix.SOCK_RAW, 1},
		"bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1}, "tipc": {unix.AF_TIPC, unix.SOCK_STREAM, 0},
		"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "raw 6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		"ping": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, "sctp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		"sctp packets": {unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}, "mptcp": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		"udplite": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}, "l2tp": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_L2TP},
	} {
		all = append(all, attempt{name: "socket " + name, try: socket(s[0], s[1], s[2]), want: refused})
	}
	for name, o := range map[string][2]int{
		"filter": {unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, "bpf": {unix.SOL_SOCKET, unix.SO_ATTACH_BPF},
		"upper protocol": {unix.IPPROTO_TCP, unix.TCP_ULP}, "netfilter": {unix.IPPROTO_IP, 64}, "busy poll": {unix.SOL_SOCKET, unix.SO_BUSY_POLL},
		"zero copy": {unix.SOL_SOCKET, unix.SO_ZEROCOPY}, "repair": {unix.IPPROTO_TCP, unix.TCP_REPAIR}, "ip": {unix.IPPROTO_IPV6, unix.IPV6_V6ONLY},
	} {
		all = append(all, attempt{name: "socket option " + name, try: setsockopt(o[0], o[1]), want: "ENOPROTOOPT"})
	}
	return all
}

// privilegeAttempts are after more than the process has.
func privilegeAttempts() []attempt {
	raise := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	return []attempt{
		{name: "read limits", try: func(facts) error {
			var l unix.Rlimit
			return unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l)
		}, want: ok},
		{name: "raise limits", try: func(facts) error { return unix.Prlimit(0, unix.RLIMIT_NOFILE, &raise, nil) }, want: "EPERM"},
		{name: "raise limits the old way", try: call(unix.SYS_SETRLIMIT, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&raise))), want: "ENOSYS"},
		{name: "become root", try: call(unix.SYS_SETUID, 0), want: "ENOSYS"},
		{name: "become root thrice", try: call(unix.SYS_SETRESUID, 0, 0, 0), want: "ENOSYS"},
		{name: "become root's group", try: call(unix.SYS_SETGID, 0), want: "ENOSYS"},
		{name: "join groups", try: call(unix.SYS_SETGROUPS, 1, here()), want: "ENOSYS"},
		{name: "root for files", try: call(unix.SYS_SETFSUID, 0), want: "ENOSYS"},
		{name: "set capabilities", try: call(unix.SYS_CAPSET, here(), here()), want: "ENOSYS"},
		{name: "ambient capability", try: call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_ADMIN), want: "EINVAL"},
		{name: "new privileges", try: call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0), want: "EINVAL"},
		{name: "keep capabilities", try: call(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1), want: "EINVAL"},
		{name: "be dumped", try: call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1), want: "EINVAL"},
		{name: "personality", try: call(unix.SYS_PERSONALITY, 0x0400000), want: "ENOSYS"}, // READ_IMPLIES_EXEC
		{name: "priority", try: call(unix.SYS_SETPRIORITY, 0, 0, minusOne-19), want: "ENOSYS"},
		{name: "scheduler", try: call(unix.SYS_SCHED_SETSCHEDULER, 0, 1, here()), want: "ENOSYS"},
		{name: "another cpu", try: call(unix.SYS_SCHED_SETAFFINITY, 0, 8, here()), want: "ENOSYS"},
		{name: "type into terminal", try: call(unix.SYS_IOCTL, 0, unix.TIOCSTI, here()), want: "ENOTTY"},
		{name: "leave terminal", try: call(unix.SYS_IOCTL, 0, unix.TIOCNOTTY), want: "ENOTTY"},
		{name: "new session", try: call(unix.SYS_SETSID), want: "ENOSYS"},
	}
}

// memfdSecret is the number of memfd_secret, which package unix does not have for arm.
const memfdSecret = 447

// kernelAttempts are after the kernel.
func kernelAttempts() (all []attempt) {
	for name, nr := range map[string]uintptr{
		"bpf": unix.SYS_BPF, "io_uring": unix.SYS_IO_URING_SETUP, "io_uring enter": unix.SYS_IO_URING_ENTER, "io_uring register": unix.SYS_IO_URING_REGISTER,
		"keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY,
		"userfaultfd": unix.SYS_USERFAULTFD, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "init_module": unix.SYS_INIT_MODULE,
		"finit_module": unix.SYS_FINIT_MODULE, "kexec_load": unix.SYS_KEXEC_LOAD,
	} {
		all = append(all, attempt{name: name, try: call(nr, here(), here(), here(), here()), want: killed})
	}
	for name, nr := range map[string]uintptr{
		"host name": unix.SYS_SETHOSTNAME, "time": unix.SYS_SETTIMEOFDAY, "clock": unix.SYS_CLOCK_SETTIME, "adjust clock": unix.SYS_ADJTIMEX,
		"reboot": unix.SYS_REBOOT, "kernel log": unix.SYS_SYSLOG, "swap": unix.SYS_SWAPON, "accounting": unix.SYS_ACCT, "quota": unix.SYS_QUOTACTL,
		"landlock": unix.SYS_LANDLOCK_CREATE_RULESET, "memory file": unix.SYS_MEMFD_CREATE, "secret memory": memfdSecret,
		"move pages": unix.SYS_MOVE_PAGES, "lock memory": unix.SYS_MLOCKALL, "splice": unix.SYS_SPLICE, "timer file": unix.SYS_TIMERFD_CREATE,
		"signal file": unix.SYS_SIGNALFD4, "aio": unix.SYS_IO_SETUP, "vmsplice": unix.SYS_VMSPLICE, "membarrier": unix.SYS_MEMBARRIER,
	} {
		all = append(all, attempt{name: name, try: call(nr, here(), here(), here(), here()), want: "ENOSYS"})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

// codeAttempts are after new machine code, which loading a module makes and nothing thereafter.
func codeAttempts() []attempt {
	page := func(protection int) ([]byte, error) {
		return unix.Mmap(-1, 0, os.Getpagesize(), protection, unix.MAP_PRIVATE|unix.MAP_ANON)
	}
	return []attempt{
		{name: "executable page", try: func(facts) error {
			_, err := page(unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC)
			return err
		}, want: killed, loading: ok},
		{name: "page that becomes executable", try: func(facts) error {
			m, err := page(unix.PROT_READ | unix.PROT_WRITE)
			if err != nil {
				return err
			}
			return unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC)
		}, want: killed, loading: ok},
		{name: "executable page by key", try: call(unix.SYS_PKEY_MPROTECT, here()&^4095, 4096, unix.PROT_EXEC, minusOne), want: "ENOSYS"},
		{name: "moved page", try: call(unix.SYS_MREMAP, here()&^4095, 4096, 8192, 1), want: "ENOSYS"},
		{name: "another list", try: call(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&allowed))), want: killed, loading: ok},
	}
}

var allowed uint32 = unix.SECCOMP_RET_ALLOW
