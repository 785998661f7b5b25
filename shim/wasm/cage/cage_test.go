package cage

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempts are what a caged process tries, with what must come of it: the errno's text, "ok", or
// the end of the process by SIGSYS.
var attempts = map[string]struct {
	try  func() error
	want string
}{
	"threads": {func() error {
		done := make(chan bool)
		go func() { runtime.LockOSThread(); done <- true }()
		<-done
		return nil
	}, "ok"},
	"unix socket":   {func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }, unix.EAFNOSUPPORT.Error()},
	"netlink":       {func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err }, unix.EAFNOSUPPORT.Error()},
	"raw socket":    {func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP); return err }, unix.EAFNOSUPPORT.Error()},
	"tcp socket":    {func() error { _, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); return err }, "ok"},
	"udp socket":    {func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); return err }, "ok"},
	"kill":          {func() error { return unix.Kill(1, 0) }, unix.ENOSYS.Error()},
	"signal others": {func() error { return unix.Tgkill(os.Getppid(), os.Getppid(), 0) }, unix.EPERM.Error()},
	"raise limits": {func() error {
		return unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 5, Max: 5}, nil)
	}, unix.EPERM.Error()},
	"type into terminal": {func() error {
		c := byte('x')
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
		return errno
	}, unix.ENOTTY.Error()},
	"become root":   {func() error { return syscall.Setuid(0) }, "panic"}, // the runtime insists on success on all threads
	"host file":     {func() error { _, err := os.ReadFile("/etc/hostname"); return err }, unix.EACCES.Error()},
	"exec":          {func() error { return unix.Exec("/bin/true", []string{"true"}, nil) }, "SIGSYS"},
	"new namespace": {func() error { return unix.Unshare(unix.CLONE_NEWUSER) }, "SIGSYS"},
	"mount":         {func() error { return unix.Mount("a", "/", "tmpfs", 0, "") }, "SIGSYS"},
	"trace":         {func() error { return unix.PtraceAttach(os.Getppid()) }, "SIGSYS"},
	"fork": {func() error {
		_, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		return e
	}, "SIGSYS"},
	"executable page": {func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	}, "SIGSYS"},
	"make executable": {func() error {
		page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		return unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC)
	}, "SIGSYS"},
	"another list": {func() error { return NewFilter(nil, Allow).Install() }, "SIGSYS"},
}

func TestMain(m *testing.M) {
	if name := os.Getenv("CAGED"); name != "" {
		os.Exit(caged(name))
	}
	os.Exit(m.Run())
}

// caged locks this process in as a guest process is, and tries one thing.
func caged(name string) int {
	steps := []func() error{
		func() error { return Confine(nil) },
		func() error { return Drop(Nobody, Nobody, nil) },
		func() error { return NewFilter(GuestCalls(), Errno(unix.ENOSYS)).Install() },
		func() error { return NewFilter(SealCalls(), Allow).Install() },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			fmt.Println("lock in:", err)
			return 1
		}
	}
	err := attempts[name].try()
	if errno, ok := err.(syscall.Errno); err == nil || ok && errno == 0 {
		fmt.Println("ok")
		return 0
	}
	fmt.Println(err)
	return 0
}

func TestCage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test needs root")
	}
	for name, a := range attempts {
		t.Run(name, func(t *testing.T) {
			if name == "host file" && landlockVersion() < 2 {
				t.Skip("this kernel has no Landlock")
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{"CAGED=" + name}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			_ = cmd.Run() // how it ended is looked at below
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case a.want == "SIGSYS":
				if !status.Signaled() || status.Signal() != unix.SIGSYS {
					t.Errorf("ended with %v: %s", cmd.ProcessState, out.String())
				}
			case a.want == "panic":
				if cmd.ProcessState.Success() && strings.TrimSpace(out.String()) == "ok" {
					t.Errorf("it worked")
				}
			case !strings.Contains(out.String(), a.want):
				t.Errorf("got %q (%v), want %q", out.String(), cmd.ProcessState, a.want)
			}
		})
	}
}

func TestDropRefusesRoot(t *testing.T) {
	if err := Drop(0, 0, nil); err == nil {
		t.Error("root was taken")
	}
}

// TestCallsAreNamedOnce keeps the lists readable: a second line for a call would never be reached.
func TestCallsAreNamedOnce(t *testing.T) {
	for _, list := range [][]Call{GuestCalls(), CompileCalls(), SealCalls()} {
		seen := map[uintptr]string{}
		for _, c := range list {
			if c.Why == "" || c.Name == "" {
				t.Errorf("call %d has no name or reason", c.Nr)
			}
			if other := seen[c.Nr]; other != "" {
				t.Errorf("%s and %s are the same call", c.Name, other)
			}
			seen[c.Nr] = c.Name
		}
	}
}
