package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

// machine is a virtual one that boots an image, sees shares and says events.
type machine struct {
	image   *image
	shares  []share
	console string // file that gets what the kernel and systemd say
	temp    string // folder for what the machine writes to its disk
}

// accelerated says whether the processor's own virtualization can be used. A /dev/kvm alone is no
// sign of it: kvm_pvm offers one too, without the processor, and runs only kernels that were made
// for it.
func accelerated() bool {
	file, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	file.Close()
	info, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && virtualizes(string(info))
}

// virtualizes reads the form of /proc/cpuinfo.
func virtualizes(cpuinfo string) bool {
	for text := range strings.Lines(cpuinfo) {
		name, flags, _ := strings.Cut(text, ":")
		if strings.TrimSpace(name) == "flags" {
			fields := strings.Fields(flags)
			return slices.Contains(fields, "vmx") || slices.Contains(fields, "svm")
		}
	}
	return false
}

// run boots the machine, hands every event to each, sends what that answers, and returns when it
// has switched itself off. The machine ends with ctx.
func (m *machine) run(ctx context.Context, each func(event) (*builds.Built, error)) (err error) {
	temp, err := os.MkdirTemp(m.temp, "machine-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	// The path of a socket must be short; that of temp need not be.
	socket := filepath.Join(os.TempDir(), "sunaba-vm-"+strconv.Itoa(os.Getpid())+".sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	// Other work goes first where the processor helps; an emulated machine would be too slow for
	// its suites' time limits.
	niceness := "10"
	if !accelerated() {
		niceness = "0"
	}
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", niceness, "qemu-system-x86_64"}, m.arguments(socket)...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start qemu: %w", err)
	}
	heard := make(chan error, 1)
	go func() { heard <- hear(listener, each) }()
	ended := cmd.Wait()
	listener.Close() // of a machine that never came to connect
	if err := <-heard; err != nil {
		ended = errors.Join(ended, err)
	}
	if ended != nil {
		return fmt.Errorf("the machine: %w\n%s\n%s ends with\n%s", ended, said.String(), m.console, tail(m.console, 20))
	}
	return nil
}

// hear reads events until the other side closes the connection, and wants the last of them to be
// that all is done.
func hear(listener net.Listener, each func(event) (*builds.Built, error)) error {
	conn, err := listener.Accept()
	if err != nil {
		return fmt.Errorf("wait for the machine: %w", err)
	}
	defer conn.Close()
	done := false
	for events := json.NewDecoder(conn); ; {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the machine's events: %w", err)
		}
		done = done || e.Done
		answer, err := each(e)
		if err != nil {
			return err
		}
		if answer != nil {
			if err := json.NewEncoder(conn).Encode(answer); err != nil {
				return fmt.Errorf("answer the machine: %w", err)
			}
		}
	}
	if !done {
		return errors.New("it ended before all suites had")
	}
	return nil
}

// arguments are qemu's. The machine has no network card.
func (m *machine) arguments(socket string) []string {
	// Emulated vectors cost more than they save: this processor has none of the wide ones. It has
	// nothing to leak either, and to switch page tables at each system call makes that fifteen
	// times as long. The clock needs no watching, which is late.
	how, processor, kernel := "tcg,thread=multi,tb-size=1024", "Nehalem", " mitigations=off init_on_alloc=0 tsc=reliable nowatchdog"
	// Two that take turns on one wait for each other's locks.
	count := min(cpus, runtime.NumCPU())
	if accelerated() {
		// A machine in a machine may not set what this feature is set by.
		how, processor, kernel, count = "kvm", "host,arch-capabilities=off", "", cpus
	}
	args := []string{
		"-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-machine", "q35", "-accel", how, "-cpu", processor, "-smp", strconv.Itoa(count), "-m", strconv.Itoa(memory),
		"-kernel", m.image.Kernel, "-initrd", m.image.Initrd,
		"-append", "root=/dev/vda rw console=ttyS0 panic=-1 apparmor=1 security=apparmor psi=1 " +
			"systemd.unified_cgroup_hierarchy=1 systemd.show_status=0 loglevel=5" + kernel,
		// What the machine writes goes to a file in TMPDIR that has no name.
		"-drive", "file=" + m.image.Disk + ",format=raw,if=virtio,snapshot=on,cache=unsafe",
		"-serial", "file:" + m.console,
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=events,path=" + socket,
		"-device", "virtserialport,chardev=events,name=" + portName,
		"-device", "virtio-rng-pci",
	}
	for _, s := range m.shares {
		args = append(args, "-virtfs", "local,security_model=none,readonly=on,multidevs=remap,mount_tag="+s.Tag+",path="+s.Path)
	}
	return args
}
