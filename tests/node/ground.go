package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/tests/binaries"
)

// Ground is where a test binary runs nodes: a network and a mount namespace of its own, so that
// every link, rule and mount that it sees is its own.
type Ground struct {
	// Name is a short word; it names the folder.
	Name string
	// Tests, if not nil, runs the program's tests: several processes, each in a folder and in
	// namespaces of its own, share them out, unless the flags choose tests. Inside then runs
	// InTurns of it.
	Tests func() int
	// Subtests are, by the name of a test, its subtests where they are shared out one by one.
	Subtests map[string][]string
	// Outside makes what needs the machine's network, before the namespaces are. It may be nil.
	Outside func(folder string) error
	// Inside is called in the namespaces, with the loopback device up; folder/bin holds the two
	// binaries. What it returns is the program's exit code. All processes have their folders in one.
	Inside func(folder string) int
}

// Enter is called by a test binary's TestMain: it provides both binaries and starts the program
// again in new namespaces; there it calls Inside. The folder goes when the program has ended.
func (g Ground) Enter() int {
	variable := "SUNABA_" + strings.ToUpper(g.Name) + "_FOLDER"
	if folder := os.Getenv(variable); folder != "" {
		if err := Loopback(); err != nil {
			fmt.Println(err)
			return 1
		}
		return g.Inside(folder)
	}
	if os.Getenv(namesVariable) != "" {
		return g.Tests()
	}
	code, err := g.outside(variable)
	if err != nil {
		fmt.Println(err)
	}
	return code
}

func (g Ground) outside(variable string) (int, error) {
	if os.Geteuid() != 0 {
		return 1, fmt.Errorf("%s: not root: it makes namespaces, mounts and cgroups", g.Name)
	}
	folder, err := os.MkdirTemp("", "sunaba-"+g.Name+"-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	if err := os.Chmod(folder, 0o711); err != nil { // containers of other users pass through it
		return 1, err
	}
	if err := binaries.Provide(filepath.Join(folder, "bin"), binaries.Sunaba, binaries.Shim); err != nil {
		return 1, err
	}
	if g.Outside != nil {
		if err := g.Outside(folder); err != nil {
			return 1, err
		}
	}
	parts, shared, err := g.parts()
	if err != nil {
		return 1, err
	}
	return runParts(folder, variable, parts, shared, os.Stdout)
}

// Again is this program once more, in a network and a mount namespace of its own.
func Again(args []string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	return cmd
}

// RunAgain runs this program once more as Again does, to its end. Where the context ends before, it
// asks it to end. The program itself says what is wrong with it.
func RunAgain(ctx context.Context, args []string, env ...string) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: pods have namespaces and cgroups")
	}
	cmd := Again(args, env...)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = errors.Join(cmd.Process.Signal(syscall.SIGTERM), <-ended)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("it ended with %d", exit.ExitCode())
	}
	return err
}

// Apart calls a function on a thread in a network and a mount namespace of its own, and waits for
// it.
func Apart(call func()) (err error) {
	thread.Run(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err == nil {
			err = Loopback()
		}
		if err == nil {
			call()
		}
	})
	return err
}

// Loopback sets up the loopback device of the calling thread's network namespace.
func Loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set up the loopback device: %w", err)
	}
	return nil
}

// HideUnified shows the version 1 controllers without the version 2 mount beside them: Debian's
// crun 1.8 does not work while it sees both. Elsewhere it does nothing. temp is a name for a folder
// that it makes and removes; the mount namespace must be one of the caller's own.
func HideUnified(temp string) error {
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err != nil {
		return nil
	}
	if err := hideUnified(temp); err != nil {
		return fmt.Errorf("hide the unified hierarchy: %w", err)
	}
	return nil
}

func hideUnified(temp string) error {
	controllers, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := unix.Mount("tmpfs", temp, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, controller := range controllers {
		if controller.Name() == "unified" {
			continue
		}
		from, to := filepath.Join("/sys/fs/cgroup", controller.Name()), filepath.Join(temp, controller.Name())
		if target, err := os.Readlink(from); err == nil {
			if err := os.Symlink(target, to); err != nil {
				return err
			}
			continue
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return unix.Mount(temp, "/sys/fs/cgroup", "", unix.MS_MOVE, "")
}
