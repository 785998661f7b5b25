package gauges

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/pods/pressure"
	"github.com/sunaba-project/sunaba/tests/disk"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// EX3: a file system of its own for the images; what is written shows, and what is removed.
func TestDisks(t *testing.T) {
	small, pods := disk.New(t, t.TempDir(), 32), t.TempDir()
	g, err := Open(pods, small, pods)
	if err != nil {
		t.Fatal(err)
	}
	if together, err := Open(pods, pods, pods); err != nil || together.Apart() || !g.Apart() {
		t.Errorf("apart: %v, %v", g.Apart(), err)
	}
	read := func() pressure.Readings {
		t.Helper()
		r, err := g.Read()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := read()
	file := filepath.Join(small, "file")
	if err := os.WriteFile(file, bytes.Repeat([]byte{1}, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Settle(); err != nil {
		t.Fatal(err)
	}
	after := read()
	image, nodes := pressure.ImageFS, pressure.NodeFS
	if got := before[image].Available - after[image].Available; got < 8<<20 || got > 9<<20 {
		t.Errorf("8 MiB take %d bytes", got)
	}
	if c := after[image].Capacity; c < 16<<20 || c > 32<<20 || after[nodes].Capacity == c {
		t.Errorf("capacities %d and %d", c, after[nodes].Capacity)
	}
	if got := before[pressure.ImageInodes].Available - after[pressure.ImageInodes].Available; got != 1 {
		t.Errorf("a file takes %d inodes", got)
	}
	if err := errors.Join(os.Remove(file), g.Settle()); err != nil {
		t.Fatal(err)
	}
	if got := read()[image].Available; before[image].Available-got > 64<<10 {
		t.Errorf("%d bytes are still missing", before[image].Available-got)
	}
	if _, err := Open(pods, filepath.Join(pods, "gone"), pods); err == nil {
		t.Error("a folder that is not there")
	}
}

// EX3: nodefs is the file system of the logs too, where they have one of their own.
func TestLogsApart(t *testing.T) {
	small, pods := disk.New(t, t.TempDir(), 32), t.TempDir()
	g, err := Open(pods, pods, small)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(small, "0.log"), bytes.Repeat([]byte{1}, 30<<20), 0o600)); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := g.Settle(); err != nil {
		t.Fatal(err)
	}
	r, err := g.Read()
	if err != nil || r[pressure.LogFS].Capacity > 32<<20 || r[pressure.LogFS].Available > 4<<20 || r[pressure.LogInodes].Capacity == 0 || r[pressure.NodeFS].Capacity <= 32<<20 {
		t.Errorf("%+v, %v", r, err)
	}
	if g, err = Open(pods, small, pods); err != nil {
		t.Fatal(err)
	}
	if r, err = g.Read(); err != nil || len(r) == 0 || r[pressure.LogFS] != (pressure.Reading{}) {
		t.Errorf("together with pods: %+v, %v", r, err)
	}
}

// EX3: memory is what there is less the working set of the root cgroup.
func TestMemoryAndProcesses(t *testing.T) {
	dir := t.TempDir()
	g := &Gauges{pods: dir, images: dir, proc: filepath.Join(dir, "proc"), memory: filepath.Join(dir, "cgroup")}
	write(t, filepath.Join(g.proc, "meminfo"), "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n")
	write(t, filepath.Join(g.proc, "sys/kernel/pid_max"), "32768\n")
	write(t, filepath.Join(g.proc, "sys/kernel/threads-max"), "1000\n")
	write(t, filepath.Join(g.proc, "loadavg"), "0.20 0.18 0.12 1/80 11206\n")
	memory := func() int64 {
		t.Helper()
		r, err := g.Read()
		if err != nil {
			t.Fatal(err)
		}
		if want := (pressure.Reading{Available: 920, Capacity: 1000}); r[pressure.PIDs] != want {
			t.Errorf("processes %+v", r[pressure.PIDs])
		}
		return r[pressure.Memory].Available >> 10
	}
	if got := memory(); got != 400 {
		t.Errorf("without a cgroup %d", got)
	}
	write(t, filepath.Join(g.memory, "memory.usage_in_bytes"), "614400\n")
	write(t, filepath.Join(g.memory, "memory.stat"), "inactive_file 1\ntotal_inactive_file 102400\nanon 204800\nfile 409600\n")
	if got := memory(); got != 500 {
		t.Errorf("version 1: %d", got)
	}
	g.unified = true
	write(t, filepath.Join(g.memory, "memory.stat"), "anon 204800\nfile 409600\ninactive_file 307200\n")
	if got := memory(); got != 700 {
		t.Errorf("version 2: %d", got)
	}
	write(t, filepath.Join(g.proc, "loadavg"), "broken\n")
	write(t, filepath.Join(g.proc, "meminfo"), "\n")
	if r, err := g.Read(); !errdefs.IsDataLoss(err) || len(r) < 2 {
		t.Errorf("broken files: %v, %v", r, err)
	}
}

// EX3: the numbers of this machine can be.
func TestThisMachine(t *testing.T) {
	g, err := Open(t.TempDir(), t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	readings, err := g.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []pressure.Signal{pressure.Memory, pressure.NodeFS, pressure.ImageFS, pressure.PIDs} {
		if r := readings[s]; r.Available <= 0 || r.Available > r.Capacity {
			t.Errorf("signal %d: %+v", s, r)
		}
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if got, want := readings[pressure.Memory].Capacity, int64(info.Totalram)*int64(info.Unit); got != want {
		t.Errorf("memory %d, the kernel says %d", got, want)
	}
}

// EX4: the alarm ends with its context; where the kernel has none, that is said.
func TestAlarm(t *testing.T) {
	dir := t.TempDir()
	none := &Gauges{proc: dir}
	if err := none.Alarm(t.Context(), func() {}); !errdefs.IsNotImplemented(err) {
		t.Errorf("without pressure stall information: %v", err)
	}
	g, err := Open(dir, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	err = g.Alarm(ctx, func() {})
	if _, missing := os.Stat("/proc/pressure/memory"); missing == nil && err != nil || missing != nil && !errdefs.IsNotImplemented(err) {
		t.Errorf("alarm: %v", err)
	}
}

func BenchmarkRead(b *testing.B) {
	g, err := Open(b.TempDir(), b.TempDir(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := g.Read(); err != nil {
			b.Fatal(err)
		}
	}
}
