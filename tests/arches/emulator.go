package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// emulators are qemu's names of the architectures, and what their programs' ELF headers say.
var emulators = map[string]struct {
	program string
	class   byte // 1 for 32 bits, 2 for 64
	machine byte
}{
	"arm64":   {"qemu-aarch64", 2, 0xb7},
	"arm":     {"qemu-arm", 1, 0x28},
	"riscv64": {"qemu-riscv64", 2, 0xf3},
}

// enter runs this program with args in a user namespace and a mount namespace of its own. There the
// kernel runs programs of other architectures by an emulator that the rest of the machine knows
// nothing of: binfmt_misc belongs to the user namespace, since Linux 6.7. All users are themselves
// in it.
func enter(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: the tests change owners and mount. Run: sudo make test-arches")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.Stdout, cmd.Stderr = stdout, stderr
	everybody := []syscall.SysProcIDMap{{Size: math.MaxInt32}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: everybody, GidMappings: everybody, GidMappingsEnableSetgroups: true,
		Pdeathsig: unix.SIGTERM,
	}
	return cmd.Run()
}

// register tells the kernel which emulator runs the programs of which architecture, in the user
// namespace of this process.
func (s *settings) register() error {
	const folder = "/proc/sys/fs/binfmt_misc"
	if err := unix.Mount("binfmt_misc", folder, "binfmt_misc", 0, ""); err != nil {
		return fmt.Errorf("mount binfmt_misc of a user namespace, which needs Linux 6.7: %w", err)
	}
	for _, arch := range s.arches {
		e, known := emulators[arch]
		switch {
		case arch == runtime.GOARCH:
			continue
		case !known:
			return fmt.Errorf("no emulator is known for architecture %q", arch)
		}
		// F has the emulator opened now: programs find it in any root file system.
		rule := fmt.Sprintf(`:sunaba-%s:M::\x7fELF\x%02x\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x%02x\x00:`+
			`\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:%s:F`,
			arch, e.class, e.machine, filepath.Join(s.qemu, e.program))
		if err := os.WriteFile(filepath.Join(folder, "register"), []byte(rule), 0); err != nil {
			return fmt.Errorf("register %s: %w", e.program, err)
		}
	}
	return nil
}
