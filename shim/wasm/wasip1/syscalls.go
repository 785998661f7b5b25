package wasip1

// Syscall is a system call that a Host makes.
type Syscall struct {
	Name   string // as in Linux's tables; some architectures have only the second form, after a slash
	Reason string
}

// Syscalls lists what this package asks of the kernel once New has returned, beside what the Go runtime
// itself needs. A seccomp filter should answer ENOSYS, or EPERM, to what it does not know: openat2 and
// epoll_pwait2 have fallbacks.
func Syscalls() []Syscall {
	return []Syscall{
		{"read", "fd_read; the wake-up descriptor"},
		{"readv", "fd_read"},
		{"preadv", "fd_pread"},
		{"write", "fd_write; Interrupt"},
		{"writev", "fd_write"},
		{"pwritev", "fd_pwrite"},
		{"lseek/_llseek", "fd_seek, fd_tell, fd_readdir, poll_oneoff on regular files"},
		{"close", "fd_close and everything opened on the way"},
		{"fcntl/fcntl64", "fd_fdstat_set_flags with APPEND, fd_pwrite on a file in append mode, sock_recv with both its flags"},
		{"ioctl", "TCGETS in path_open of a character device; FIONREAD in poll_oneoff"},
		{"fadvise64/arm_fadvise64_64", "fd_advise"},
		{"fallocate", "fd_allocate"},
		{"ftruncate/ftruncate64", "fd_filestat_set_size"},
		{"fsync", "fd_sync, and writes after fd_fdstat_set_flags with SYNC"},
		{"fdatasync", "fd_datasync, and writes after fd_fdstat_set_flags with DSYNC"},
		{"fstat/fstat64", "fd_filestat_get, path_open, path_filestat_get"},
		{"newfstatat/fstatat64", "path_filestat_get"},
		{"fstatfs/fstatfs64", "path_open, once for each file system, to refuse procfs"},
		{"utimensat", "fd_filestat_set_times, path_filestat_set_times"},
		{"getdents64", "fd_readdir"},
		{"openat2", "every path of more than one component, path_open"},
		{"openat", "the same on kernels without openat2"},
		{"readlinkat", "path_readlink, path_link that follows; paths on kernels without openat2"},
		{"mkdirat", "path_create_directory"},
		{"unlinkat", "path_unlink_file, path_remove_directory"},
		{"renameat/renameat2", "path_rename"},
		{"linkat", "path_link"},
		{"symlinkat", "path_symlink"},
		{"ppoll", "waiting for one descriptor, sleeping"},
		{"epoll_create1", "the first poll_oneoff on a descriptor"},
		{"epoll_ctl", "poll_oneoff"},
		{"epoll_pwait", "poll_oneoff"},
		{"epoll_pwait2", "poll_oneoff, where the kernel has it"},
		{"clock_gettime", "clock_time_get of the CPU clocks"},
		{"clock_getres", "clock_res_get"},
		{"getrandom", "random_get"},
		{"accept4", "sock_accept, Interrupt"},
		{"recvmsg", "fd_read and sock_recv on sockets, sock_recv_from"},
		{"sendmsg", "fd_write and sock_send on sockets, sock_send_to"},
		{"shutdown", "sock_shutdown, Interrupt"},
		{"socket", "sock_open, sock_getaddrinfo"},
		{"bind", "sock_bind"},
		{"connect", "sock_connect, sock_getaddrinfo"},
		{"listen", "sock_listen"},
		{"getsockname", "sock_getlocaladdr"},
		{"getpeername", "sock_getpeeraddr"},
		{"getsockopt", "sock_getsockopt, the result of sock_connect"},
		{"setsockopt", "sock_setsockopt, sock_listen"},
	}
}
