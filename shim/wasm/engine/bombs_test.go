package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/wasm/guest"
)

// section is one section of a module.
func section(id byte, content ...byte) []byte {
	return append(binary.AppendUvarint([]byte{id}, uint64(len(content))), content...)
}

// handmade is a command of one function with this body, and sections between the functions and the
// exports.
func handmade(body []byte, between ...[]byte) []byte {
	body = append([]byte{0}, append(body, 0x0b)...) // no variables, end
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, 1, 0x60, 0, 0),
		section(3, 1, 0),
		bytes.Join(between, nil),
		section(7, append([]byte{1, 6}, "_start\x00\x00"...)...),
		section(10, append([]byte{1, byte(len(body))}, body...)...),
	}, nil)
}

var (
	// recursion calls itself without end.
	recursion = handmade([]byte{0x10, 0})
	// tableBomb grows a table by a million of entries until it may not.
	tableBomb = handmade([]byte{
		0x03, 0x40, // loop
		0xd0, 0x70, // ref.null func
		0x41, 0xc0, 0x84, 0x3d, // i32.const 1000000
		0xfc, 0x0f, 0, // table.grow
		0x41, 0x7f, 0x47, 0x0d, 0, // i32.const -1, i32.ne, br_if 0
		0x0b,
	}, section(4, 1, 0x70, 0, 1))
	// nearly4GiB starts with 65535 pages of memory, and writes to the end of it.
	nearly4GiB = handmade([]byte{0x41, 0xfc, 0xff, 0x7b, 0x41, 7, 0x36, 2, 0}, // i32.const -65540, i32.const 7, i32.store
		section(5, 1, 0, 0xff, 0xff, 0x03))
	// all4GiB starts with one page more.
	all4GiB = handmade(nil, section(5, 1, 0, 0x80, 0x80, 0x04))
	// toAll4GiB starts with a page less than nearly4GiB, grows to that, writes to it, and traps if
	// it may grow to 4 GiB or can no longer write.
	toAll4GiB = handmade([]byte{
		0x41, 1, 0x40, 0, 0x1a, // i32.const 1, memory.grow, drop
		0x41, 0, 0x41, 7, 0x36, 2, 0, // i32.const 0, i32.const 7, i32.store
		0x41, 1, 0x40, 0, 0x41, 0x7f, 0x47, 0x04, 0x40, 0, 0x0b, // i32.const 1, memory.grow, i32.const -1, i32.ne, if, unreachable, end
		0x41, 0, 0x41, 7, 0x36, 2, 0,
	}, section(5, 1, 0, 0xfe, 0xff, 0x03))
	// memoryBomb grows its memory by a MiB and writes to it until it may not.
	memoryBomb = handmade(growth, section(5, 1, 0, 1))
	// memoryTrap does so too, and does not go on without more.
	memoryTrap = handmade(append(slices.Clone(growth), 0), section(5, 1, 0, 1))

	growth = []byte{
		0x03, 0x40, // loop
		0x3f, 0, 0x41, 0x10, 0x74, 0x41, 4, 0x6b, 0x41, 7, 0x36, 2, 0, // at 4 before its size << 16, i32.store 7
		0x41, 0x10, 0x40, 0, // i32.const 16, memory.grow
		0x41, 0x7f, 0x47, 0x0d, 0, // i32.const -1, i32.ne, br_if 0
		0x0b,
	}
)

// withModule is a bench whose program is made by hand, limited to this memory in bytes, 0 = none.
func withModule(t *testing.T, module []byte, limit int64) *bench {
	t.Helper()
	b := newBench(t, "")
	if err := os.WriteFile(filepath.Join(b.bundle.Rootfs, "app.wasm"), module, 0o644); err != nil {
		t.Fatal(err)
	}
	if limit != 0 {
		b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	}
	return b
}

func TestDeepRecursionIsATrap(t *testing.T) {
	b := withModule(t, recursion, 1<<30)
	if exit := b.runToEnd(); exit.Code != 134 || !strings.Contains(exit.Message, "stack overflow") {
		t.Errorf("exit %+v, stderr %.200q", exit, b.stderr.all())
	}
	b = withModule(t, recursion, 64<<20) // less than the engine gives to a stack
	if exit := b.runToEnd(); exit.Code != 137 || !exit.OOMKilled {
		t.Errorf("with little memory: exit %+v, stderr %.200q", exit, b.stderr.all())
	}
}

// TestMemoryBombs let guests take all that they can get: they end, or are told no, and the machine
// has lost nothing.
func TestMemoryBombs(t *testing.T) {
	const limit = 96 << 20
	b := withModule(t, tableBomb, limit)
	if exit := b.runToEnd(); exit.Code != 137 || !exit.OOMKilled {
		t.Errorf("table: exit %+v, stderr %.200q", exit, b.stderr.all())
	}
	b = withModule(t, memoryBomb, limit)
	if exit := b.runToEnd(); exit.Code != 0 {
		t.Errorf("memory.grow: exit %+v, stderr %.200q", exit, b.stderr.all())
	}
}

func TestModuleWithAllTheMemoryThatThereCanBe(t *testing.T) {
	b := withModule(t, nearly4GiB, 64<<20)
	b.pipes(false)
	_, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	b.release()
	if !errors.Is(err, errdefs.ErrFailedPrecondition) || !strings.Contains(err.Error(), "4294901760 bytes of memory") {
		t.Errorf("with a limit: %v", err)
	}
	b.checkGone(0)

	b = withModule(t, nearly4GiB, 0) // it uses one page of it
	c := b.create()
	used := status(t, fmt.Sprintf("/proc/%d/status", c.Init().Pid()))["VmRSS"]
	var kib int
	if _, err := fmt.Sscanf(used, "%d kB", &kib); err != nil || kib > 256<<10 {
		t.Errorf("it uses %q, %v", used, err)
	}
	start(t, c.Init())
	if exit := ended(t, c.Init()); exit.Code != 0 {
		t.Errorf("without a limit: exit %+v, stderr %.200q", exit, b.stderr.all())
	}
	b = withModule(t, toAll4GiB, 0)
	if exit := b.runToEnd(); exit.Code != 0 {
		t.Errorf("growing: exit %+v, stderr %.200q", exit, b.stderr.all())
	}
	b = withModule(t, all4GiB, 0)
	b.pipes(false)
	_, err = b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	b.release()
	if !errors.Is(err, errdefs.ErrFailedPrecondition) || !strings.Contains(err.Error(), "4294967296 bytes of memory, a guest can have 4294901760") {
		t.Errorf("all: %v", err)
	}
	b.checkGone(0)
}

// TestBurnerIsThrottled has a guest that computes all the time, with a tenth of a CPU.
func TestBurnerIsThrottled(t *testing.T) {
	b := newBench(t, "probe", "spin")
	quota, period := int64(10000), uint64(100000)
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota, Period: &period}}
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "spin=on")
	group := c.(*container).cgroup.manager
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		stats, err := group.Stats(&cgroups.StatsOptions{Controllers: cgroups.CPU})
		if err != nil {
			t.Fatal(err)
		}
		if stats.CpuStats.ThrottlingData.ThrottledPeriods >= 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it was never throttled: %+v", stats.CpuStats.ThrottlingData)
		}
	}
	signal(t, c.Init(), unix.SIGKILL)
	ended(t, c.Init())
}

// TestDescriptorFlood opens a file again and again, until the limit of the container.
func TestDescriptorFlood(t *testing.T) {
	for _, limit := range []uint64{100, 5000} {
		b := newBench(t, "probe", "flood:/app.wasm", "flood:/app.wasm", "env:X")
		b.bundle.Spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: limit, Hard: limit}}
		exit := b.runToEnd()
		out := b.stdout.all()
		count := 0
		if _, err := fmt.Sscanf(out, "flood:/app.wasm=%d No file descriptors available\nflood:/app.wasm=0 No file", &count); err != nil || exit.Code != 0 {
			t.Errorf("limit %d: %q, exit %+v, %v", limit, out, exit, err)
		}
		if most := int(limit); count < most-40 || count > most {
			t.Errorf("limit %d: it opened %d", limit, count)
		}
	}
}

// TestOpenDescriptors knows every descriptor of a guest process. What this test was started with
// is inherited, such as the lock under which a run waits for its turn.
func TestOpenDescriptors(t *testing.T) { eachWay(t, openDescriptors) }

func openDescriptors(t *testing.T, w way) {
	b := w.newBench(t, "probe", "sleep")
	b.bundle.Facts.Listeners = []annotation.Listener{{Name: "http", Port: 8080}}
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "tmpfs", Destination: "/dev"}, {Type: "bind", Source: openDir(t), Destination: "/v", Options: []string{"rbind"}}}
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	further := startFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "sleep"}, Cwd: "/"}, "sleep=on")
	for name, pid := range map[string]int{"first": c.Init().Pid(), "further": further.Pid()} {
		got, err := descriptorKinds(strconv.Itoa(pid), func(int) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		// Standard streams, one of them twice; the link and a listener; the container's tree for
		// the engine and for the guest; epoll of the runtime and of the guest, and what wakes them.
		allowed := map[string]int{"/dev/null": 3, "pipe": 3, "socket": 2, "/rootfs": 2, "anon_inode:[eventpoll]": 2, "anon_inode:[eventfd]": 2}
		for kind, n := range got {
			if n > allowed[kind]+shared.inherited[kind] {
				t.Errorf("%s process: %d of %q", name, n, kind)
			}
		}
		if got["pipe"] == 0 || got["socket"] == 0 {
			t.Errorf("%s process: descriptors %v", name, got)
		}
	}
}

// descriptorKinds counts what the wanted descriptors of a process are, by the kind or the path of
// each.
func descriptorKinds(process string, wanted func(fd int) bool) (map[string]int, error) {
	kinds := map[string]int{}
	entries, err := os.ReadDir("/proc/" + process + "/fd")
	for _, e := range entries {
		target, err := os.Readlink("/proc/" + process + "/fd/" + e.Name())
		if errors.Is(err, os.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if fd, err := strconv.Atoi(e.Name()); err != nil || !wanted(fd) {
			continue
		}
		kind, _, _ := strings.Cut(target, ":[")
		if kind == "anon_inode" {
			kind = target
		}
		kinds[kind]++
	}
	return kinds, err
}

// isInherited says of a descriptor of this process that its children have it too.
func isInherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && fd > 2 && flags&unix.FD_CLOEXEC == 0
}

// TestDeafProcessCanBeKilled has a process that does not read what its shim says, here because it
// is paused: it can be killed however much that was.
func TestDeafProcessCanBeKilled(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	b.bundle.Facts.StopWait = true
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	if err := c.Pause(context.Background()); err != nil {
		t.Fatal(err)
	}
	refused := false
	for range 5000 {
		if refused = c.Init().Signal(context.Background(), unix.SIGTERM, false) != nil; refused {
			break
		}
	}
	if !refused {
		t.Error("a process that does not listen took everything")
	}
	signal(t, c.Init(), unix.SIGKILL)
	if exit := ended(t, c.Init()); exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
}

// TestTakenProcessTalks has a process that sends its shim what it never should: an exit is what it
// then says, and no other container has anything of it.
func TestTakenProcessTalks(t *testing.T) {
	for _, how := range []string{"nonsense", "huge frame", "flood of messages", "files"} {
		t.Run(how, func(t *testing.T) {
			k := newTaken(t, guest.Running, forked)
			k.bundle.Spec.Process.Args = []string{"/app.wasm", "{}", how}
			c := k.create()
			start(t, c.Init())
			k.stdout.await(t, how+"=on")
			signal(t, c.Init(), unix.SIGKILL)
			if exit := ended(t, c.Init()); exit.Code != 137 {
				t.Errorf("exit %+v", exit)
			}
		})
	}
}
