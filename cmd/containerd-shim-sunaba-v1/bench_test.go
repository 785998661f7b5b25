package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/tests/binaries"
)

// build provides the shim binary as the release is made: its size is what is measured.
func build(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	check(t, binaries.Provide(folder, binaries.Shim))
	return filepath.Join(folder, binaries.Shim)
}

// smaps reads figures of a process's memory in KiB.
func smaps(t testing.TB, pid int) map[string]int {
	t.Helper()
	figures := make(map[string]int)
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)))(t))) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "kB" {
			figures[strings.TrimSuffix(fields[0], ":")], _ = strconv.Atoi(fields[1])
		}
	}
	return figures
}

func threads(t testing.TB, pid int) int {
	t.Helper()
	return len(must(os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)))(t))
}

// settle is how long a shim takes to give memory back after its last call, and some more.
const settle = 700 * time.Millisecond

// BenchmarkIdleShim weighs a shim that holds one runc container and has nothing to do. At most 5120
// KiB are wanted.
func BenchmarkIdleShim(b *testing.B) {
	p := newPod(b, build(b))
	c := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(b).start(b)
	time.Sleep(settle)
	m := smaps(b, p.PID())
	before := cpuTime(b, p.PID())
	for b.Loop() {
		time.Sleep(time.Second)
	}
	b.ReportMetric(float64(m["Pss"]), "PSS-KiB")
	b.ReportMetric(float64(m["Pss_Anon"]), "anonymous-KiB")
	b.ReportMetric(float64(threads(b, p.PID())), "threads")
	b.ReportMetric(float64(cpuTime(b, p.PID())-before)/float64(b.N), "ticks/s")
	check(b, p.Kill(within(b), c.id, "", syscall.SIGKILL, false))
	c.wait(b)
	c.delete(b)
}

// BenchmarkCrowdedShim weighs a shim that holds the containers of a hundred pods, as one for a
// whole node would: per container. At most 300 KiB are wanted. What Linux itself needs of each
// process is not in it.
func BenchmarkCrowdedShim(b *testing.B) {
	const crowd = 100
	p := newPod(b, build(b))
	time.Sleep(settle)
	alone := smaps(b, p.PID())["Pss"]
	var all []*container
	for range crowd {
		all = append(all, p.container(enginetest.Program{Kind: enginetest.Sleep}).create(b).start(b))
	}
	time.Sleep(settle)
	m := smaps(b, p.PID())
	for b.Loop() {
		must(p.State(within(b), all[0].id, ""))(b)
	}
	b.ReportMetric(float64(m["Pss"])/crowd, "PSS-KiB/container")
	b.ReportMetric(float64(m["Pss"]-alone)/crowd, "more-KiB/container")
	b.ReportMetric(float64(m["Pss"]), "PSS-KiB")
	b.ReportMetric(float64(m["Pss_Anon"]), "anonymous-KiB")
	b.ReportMetric(float64(threads(b, p.PID())), "threads")
	for _, c := range all {
		check(b, p.Kill(within(b), c.id, "", syscall.SIGKILL, false))
		c.wait(b)
		c.delete(b)
	}
}

// cpuTime is user and system time in ticks.
func cpuTime(t testing.TB, pid int) int {
	t.Helper()
	fields := strings.Fields(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)))
	user, _ := strconv.Atoi(fields[13])
	system, _ := strconv.Atoi(fields[14])
	return user + system
}

// BenchmarkRuncContainer measures a container's life through the shim, call by call.
func BenchmarkRuncContainer(b *testing.B) {
	p := newPod(b, build(b))
	times := map[string][]time.Duration{}
	timed := func(name string, f func()) {
		begin := time.Now()
		f()
		times[name] = append(times[name], time.Since(begin))
	}
	for b.Loop() {
		c := p.container(enginetest.Program{Kind: enginetest.Sleep})
		c.prepare(b)
		timed("runc", func() { check(b, exec.Command("runc", "--version").Run()) }) // what a busy machine makes of a program
		timed("create", func() { must(c.Create(within(b), c.req))(b) })
		timed("start", func() { c.start(b) })
		timed("kill", func() { check(b, p.Kill(within(b), c.id, "", syscall.SIGKILL, false)); c.wait(b) })
		timed("delete", func() { c.delete(b) })
	}
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-ms")
	}
}

// BenchmarkShim measures a shim's start to its first answer, its memory and its end.
func BenchmarkShim(b *testing.B) {
	binary := build(b)
	var up, down []time.Duration
	var pss int
	for b.Loop() {
		p := newPod(b, binary)
		_, _ = p.State(within(b), "x", "")
		up = append(up, time.Since(p.begun))
		pss = smaps(b, p.PID())["Pss"]
		begin := time.Now()
		shutDown(b, p.Client)
		ended(b, p)
		down = append(down, time.Since(begin))
	}
	slices.Sort(up)
	slices.Sort(down)
	b.ReportMetric(float64(up[len(up)/2].Microseconds())/1000, "start-ms")
	b.ReportMetric(float64(down[len(down)/2].Microseconds())/1000, "end-ms")
	b.ReportMetric(float64(pss), "first-PSS-KiB")
}

// BenchmarkSupervisedShim weighs a shim for a whole node and its supervisor with the containers of
// a hundred pods, and the successor of that shim, which is timed as well. At most 300 KiB are
// wanted for each container, of all together.
func BenchmarkSupervisedShim(b *testing.B) {
	const crowd = 100
	k := newSupervised(b, build(b))
	supervisor := must(strconv.Atoi(string(must(os.ReadFile(filepath.Join(k.dir, "shim.pid")))(b))))(b)
	var all []*container
	for range crowd {
		all = append(all, k.container(enginetest.Program{Kind: enginetest.Sleep}).create(b).start(b))
	}
	time.Sleep(settle)
	shim, before := smaps(b, k.shim)["Pss"], smaps(b, supervisor)["Pss"]
	var took time.Duration
	for b.Loop() {
		time.Sleep(restartPause)
		begun := time.Now()
		k.kill(b)
		took += time.Since(begun)
	}
	b.ReportMetric(float64(shim), "shim-PSS-KiB")
	b.ReportMetric(float64(before), "supervisor-PSS-KiB")
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "successor-ms")
	time.Sleep(settle)
	successor, after := smaps(b, k.shim)["Pss"], smaps(b, supervisor)["Pss"]
	b.ReportMetric(float64(successor), "successor-PSS-KiB")
	b.ReportMetric(float64(after), "supervisor-then-PSS-KiB")
	b.ReportMetric(float64(successor+after)/crowd, "PSS-KiB/container")
	for _, c := range all {
		check(b, k.Kill(within(b), c.id, "", syscall.SIGKILL, false))
		c.wait(b)
		c.delete(b)
	}
	k.quit(b)
}
