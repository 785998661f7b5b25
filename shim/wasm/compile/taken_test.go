package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/binfmt"
)

// takenName is the name by which this binary is a compiler that its module has taken over.
const takenName = "taken-compiler"

// asTaken runs the child of a compiler that is taken over, if this binary was called by that name.
func asTaken(args []string) (code int, ok bool) {
	if filepath.Base(args[0]) != takenName || len(args) < 3 {
		return 0, false
	}
	skip, l, _, ok := asChild(args[2:])
	if !ok {
		return 0, false
	}
	if err := child(skip, l, misbehave); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// orders are what a module tells the compiler that it takes over, behind its header.
type orders struct {
	Secret string   // a file of the host
	Pid    int      // of a process of the host
	Port   int      // of a listener on the host's loopback
	Try    []string // names of attempts, whose outcomes are reported; or of one leaving
}

// misbehave is what runs in place of the compiler.
func misbehave(_ string, module []byte, _ Steps) error {
	var o orders
	if err := json.Unmarshal(module[binfmt.WasmHeader:], &o); err != nil {
		return err
	}
	var said []string
	for _, name := range o.Try {
		if leave, ok := leavings()[name]; ok {
			return leave()
		}
		said = append(said, name+"="+errnoName(attempts(o)[name].try()))
	}
	return fmt.Errorf("%w\n%s", errRefused, strings.Join(said, "\n"))
}

func errnoName(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return fmt.Sprint(err)
}

// ok is the outcome of what a compiler may do, killed that of what ends it by SIGSYS.
const (
	ok     = "<nil>"
	killed = "killed"
)

// attempt is one thing that a compiler tries, with what must come of it.
type attempt struct {
	try  func() error
	want string
}

var scratch [4096]byte

func try(nr uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

func opening(name string, flags int) func() error {
	return func() error {
		fd, err := unix.Open(name, flags, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// mapExecutable maps a page that holds code.
func mapExecutable() error {
	_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	return err
}

// attempts are all that is tried, by name.
func attempts(o orders) map[string]attempt {
	const write = unix.O_WRONLY | unix.O_CREAT
	here := uintptr(unsafe.Pointer(&scratch[0]))
	here2 := ^uintptr(99) // AT_FDCWD
	raised := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	confined := ok
	if v, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno == 0 && v >= 2 {
		confined = "EACCES"
	}
	all := map[string]attempt{
		// What is its own, so that the rest means something.
		"own file":        {opening("/own", write), ok},
		"executable page": {mapExecutable, ok},

		"host file":            {opening(o.Secret, unix.O_RDONLY), "ENOENT"},
		"write host file":      {opening(o.Secret, write), "ENOENT"},
		"host file by dots":    {opening(strings.Repeat("../", 16)+o.Secret, unix.O_RDONLY), "ENOENT"},
		"module's neighbours":  {opening("../in", unix.O_RDONLY), "ENOENT"},
		"own memory":           {opening("/proc/self/mem", unix.O_RDWR), "ENOENT"},
		"devices":              {opening("/dev/null", unix.O_RDWR), "ENOENT"},
		"write module":         {func() error { _, err := unix.Pwrite(childModule, scratch[:1], 0); return err }, "EBADF|ENOSYS"},
		"write module, listed": {func() error { _, err := unix.Write(childModule, scratch[:1]); return err }, "EBADF"},
		"cut module":           {func() error { return unix.Ftruncate(childModule, 0) }, "EINVAL"},
		"directory by number":  {func() error { return unix.Fchdir(childOut) }, "ENOSYS"},
		"file of its folder's": {func() error { return openFrom(childOut, "../in") }, "EBADF|ENOTDIR"},
		"leaked directory":     {func() error { return openFrom(leaked, filepath.Base(o.Secret)) }, confined},
		"link to the module":   {func() error { return unix.Linkat(childModule, "", unix.AT_FDCWD, "/linked", unix.AT_EMPTY_PATH) }, "ENOENT|EPERM|EXDEV|EACCES"},
		"execute its own file": {func() error { return unix.Exec("/own", []string{"own"}, nil) }, killed},
		"many open files":      {openMany, "EMFILE"},
		"large file":           {func() error { return unix.Fallocate(mustOpen("/large"), 0, 0, 1<<40) }, "EFBIG"},
		"change mode":          {try(unix.SYS_FCHMODAT, here2, here, 0o777), "ENOSYS"},
		"change owner":         {try(unix.SYS_FCHOWNAT, here2, here, 0, 0, 0), "ENOSYS"},
		"make device":          {try(unix.SYS_MKNODAT, here2, here, unix.S_IFCHR|0o666, 0x105), killed},

		"unix socket": {try(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0), "ENOSYS"},
		"tcp socket":  {try(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0), "ENOSYS"},
		"netlink":     {try(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 0), "ENOSYS"},
		"socket pair": {try(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, here), "ENOSYS"},
		"connect":     {func() error { return unix.Connect(2, &unix.SockaddrInet4{Port: o.Port, Addr: [4]byte{127, 0, 0, 1}}) }, "ENOSYS"},

		"fork":              {try(unix.SYS_CLONE, uintptr(unix.SIGCHLD)), killed},
		"clone3":            {try(unix.SYS_CLONE3, here, 88), "ENOSYS"},
		"kill":              {try(unix.SYS_KILL, uintptr(o.Pid), uintptr(unix.SIGKILL)), "ENOSYS"},
		"kill all":          {try(unix.SYS_KILL, ^uintptr(0), 0), "ENOSYS"},
		"kill thread":       {try(unix.SYS_TGKILL, uintptr(o.Pid), uintptr(o.Pid), uintptr(unix.SIGKILL)), "EPERM"},
		"limits of another": {try(unix.SYS_PRLIMIT64, uintptr(o.Pid), unix.RLIMIT_NOFILE, 0, here), "EPERM"},
		"raise limits":      {func() error { return unix.Prlimit(0, unix.RLIMIT_NOFILE, &raised, nil) }, "EPERM"},
		"shared memory":     {try(unix.SYS_SHMGET, 1, 4096, 0o1666), "ENOSYS"},
		"become root":       {try(unix.SYS_SETRESUID, 0, 0, 0), "ENOSYS"},
		"set capabilities":  {try(unix.SYS_CAPSET, here, here), "ENOSYS"},
		"join groups":       {try(unix.SYS_SETGROUPS, 1, here), "ENOSYS"},
		"be dumped":         {try(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1), "EINVAL"},
		"new privileges":    {try(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0), "EINVAL"},
		"another list":      {try(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, here), "ENOSYS"},
		"type into input":   {try(unix.SYS_IOCTL, 0, unix.TIOCSTI, here), "ENOTTY"},
		"memory file":       {try(unix.SYS_MEMFD_CREATE, here, 0), "ENOSYS"},
		"landlock":          {try(unix.SYS_LANDLOCK_CREATE_RULESET, here, 8, 0), "ENOSYS"},
		"watch":             {try(unix.SYS_INOTIFY_INIT1, 0), "ENOSYS"},
		"host name":         {try(unix.SYS_SETHOSTNAME, here, 1), "ENOSYS"},
	}
	for name, nr := range map[string]uintptr{
		"execute": unix.SYS_EXECVE, "mount": unix.SYS_MOUNT, "unmount": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT,
		"chroot": unix.SYS_CHROOT, "open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "fsopen": unix.SYS_FSOPEN,
		"unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS, "trace": unix.SYS_PTRACE, "read memory": unix.SYS_PROCESS_VM_READV,
		"process by descriptor": unix.SYS_PIDFD_OPEN, "descriptor of another": unix.SYS_PIDFD_GETFD, "bpf": unix.SYS_BPF,
		"io_uring": unix.SYS_IO_URING_SETUP, "keyctl": unix.SYS_KEYCTL, "userfaultfd": unix.SYS_USERFAULTFD,
		"perf": unix.SYS_PERF_EVENT_OPEN, "load module": unix.SYS_FINIT_MODULE, "file by handle": unix.SYS_OPEN_BY_HANDLE_AT,
	} {
		all[name] = attempt{try(nr, here, here, here, here), killed}
	}
	return all
}

// leaked is a directory of the host, as if the shim had left it open: Landlock stands in the way,
// and nothing else.
const leaked = childOut + 1

func openFrom(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func mustOpen(name string) int {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		panic(err)
	}
	return fd
}

// openMany opens files until it is refused, and closes them.
func openMany() error {
	var opened []int
	defer func() {
		for _, fd := range opened {
			unix.Close(fd)
		}
	}()
	for range 1000 {
		fd, err := unix.Open("/own", unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		opened = append(opened, fd)
	}
	return nil
}

// takenBy compiles a module that gives these orders to the compiler it takes over.
func takenBy(t *testing.T, cache string, o orders) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), takenName)
	if err := os.Symlink(self, name); err != nil {
		t.Fatal(err)
	}
	told, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Open(filepath.Dir(o.Secret))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	leak := func(cmd *exec.Cmd) (func() int, error) {
		cmd.ExtraFiles = append(cmd.ExtraFiles, host)
		return startPlain(cmd)
	}
	_, err = Ensure(t.Context(), Options{CacheDir: cache, Self: name, Start: leak}, writeModule(t, append([]byte("\x00asm\x01\x00\x00\x00"), told...)), "")
	return err
}

// TestCompilerThatIsTakenOver runs native code in place of the compiler: what a module that finds
// a fault in it can do.
func TestCompilerThatIsTakenOver(t *testing.T) {
	o := orders{Secret: filepath.Join(t.TempDir(), "secret"), Pid: os.Getpid()}
	if err := os.WriteFile(o.Secret, []byte("the host's\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	o.Port = listener.Addr().(*net.TCPAddr).Port
	cache := t.TempDir()
	wants := map[string]string{}
	all := attempts(o)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].want != killed {
			wants[name] = all[name].want
			continue
		}
		o.Try = []string{name}
		if err := takenBy(t, cache, o); err == nil || !strings.Contains(err.Error(), "(code "+strconv.Itoa(128+int(unix.SIGSYS))+")") {
			t.Errorf("%s: %v; want the compiler killed", name, err)
		}
	}
	o.Try = slices.Sorted(maps.Keys(wants))
	err = takenBy(t, cache, o)
	for line := range strings.Lines(fmt.Sprint(err)) {
		name, got, said := strings.Cut(strings.TrimSpace(line), "=")
		if !said {
			continue
		}
		got = strings.TrimSuffix(got, ": invalid argument") // the class of the last line
		if want, known := wants[name]; !known || !slices.Contains(strings.Split(want, "|"), got) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		delete(wants, name)
	}
	if len(wants) > 0 {
		t.Errorf("nothing came of %v: %v", wants, err)
	}
	if text, err := os.ReadFile(o.Secret); err != nil || string(text) != "the host's\n" {
		t.Errorf("the host's file holds %q, %v", text, err)
	}
	if got := names(t, cache); len(got) != 0 {
		t.Errorf("cache holds %v", got)
	}
}

// leavings are what a compiler that is taken over leaves, as if it had compiled.
func leavings() map[string]func() error {
	entry := func(facts string, more func() error) func() error {
		return func() error {
			return errors.Join(os.WriteFile("/"+ModuleName, []byte("\x00asm\x01\x00\x00\x00"), 0o600),
				os.WriteFile("/"+factsName, []byte(facts), 0o600), more())
		}
	}
	return map[string]func() error{
		"nothing":             func() error { return nil },
		"symbolic link":       entry("{}", func() error { return os.Symlink("/etc/shadow", "/"+CodeName) }),
		"facts that are link": entry("{}", func() error { return errors.Join(os.Remove("/"+factsName), os.Symlink("/etc/passwd", "/"+factsName)) }),
		"two names":           entry("{}", func() error { return os.Link("/"+ModuleName, "/other") }),
		"a record":            entry("{}", func() error { return os.WriteFile("/"+recordName, []byte("{}"), 0o600) }),
		"nonsense":            entry("{{{", func() error { return nil }),
		"long facts":          entry(`{"load":{}`+strings.Repeat(" ", maxFacts)+"}", func() error { return nil }),
		"image that lies":     entry(`{"load":{"imageAt":0,"imageSize":65536}}`, func() error { return nil }),
		"image outside":       entry(`{"load":{"imageAt":4294967296,"imageSize":65536}}`, func() error { return nil }),
		"code without module": entry(`{"load":{"codeSize":4096}}`, func() error { return os.WriteFile("/"+CodeName, make([]byte, 4096), 0o600) }),
		"code, no offsets":    entry(`{"load":{"bare":true,"codeSize":65536}}`, func() error { return os.WriteFile("/"+CodeName, make([]byte, imageAlign), 0o600) }),
	}
}

// TestTakenCompilerLeaves has a taken compiler leave what is no entry.
func TestTakenCompilerLeaves(t *testing.T) {
	for name := range leavings() {
		cache := t.TempDir()
		if err := takenBy(t, cache, orders{Try: []string{name}}); err == nil || !strings.Contains(err.Error(), "take over compiled module") {
			t.Errorf("%s: %v; want it refused", name, err)
		}
		if got := names(t, cache); len(got) != 0 {
			t.Errorf("%s: cache holds %v", name, got)
		}
	}
}
