package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/thread"
)

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		driver           Driver
		given            string
		parent, leafPath string
		owned            bool
	}{
		{Cgroupfs, "", "/sunaba/pod-P", "/sunaba/pod-P/C", true},
		{Cgroupfs, "/kubepods/besteffort/podX", "/kubepods/besteffort/podX", "/kubepods/besteffort/podX/C", false},
		{Cgroupfs, "relative", "/relative", "/relative/C", false},
		{Systemd, "", "sunaba-podP.slice", "/sunaba.slice/sunaba-podP.slice/sunaba-C.scope", true},
		{
			Systemd, "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podX_1.slice", "kubepods-besteffort-podX_1.slice",
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podX_1.slice/sunaba-C.scope", false,
		},
	} {
		l := Layout{Driver: c.driver}
		parent, owned, err := l.Pod("P", c.given)
		if err != nil || parent != c.parent || owned != c.owned {
			t.Errorf("%s Pod(%q) = %q, %t, %v; want %q, %t", c.driver, c.given, parent, owned, err, c.parent, c.owned)
		}
		if got := l.Path(l.Leaf(parent, "C")); got != c.leafPath {
			t.Errorf("%s leaf below %q is at %q, want %q", c.driver, parent, got, c.leafPath)
		}
	}
	if _, _, err := (Layout{Driver: Systemd}).Pod("P", "/not/a/slice/x"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("parent that is no slice: %v", err)
	}
	for _, driver := range []Driver{Cgroupfs, Systemd} {
		for _, given := range []string{
			"../x.slice", "/a/../../x.slice", "/a\n.slice", "/a\x00.slice", " ", "\t", "/ /a.slice", "/a .slice", "/a\u00a0.slice", "/a\u200b.slice",
			"/a\u0085.slice", "//a.slice", "/a.slice/", "/x//a.slice", "//", ".", "..", "/.", "/./a.slice", "/x/./a.slice", "/x/../a.slice",
		} {
			if _, _, err := (Layout{Driver: driver}).Pod("P", given); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "linux.cgroup_parent: ") {
				t.Errorf("%s: parent %q: %v", driver, given, err)
			}
		}
	}
	for _, given := range []string{".slice", "a-.slice", "-a.slice", "a--b.slice", "a:b.slice", "a@b.slice", "/a.slice/a-é.slice", "/", "--.slice"} {
		if _, _, err := (Layout{Driver: Systemd}).Pod("P", given); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "linux.cgroup_parent: ") {
			t.Errorf("slice %q: %v", given, err)
		}
	}
	for driver, given := range map[Driver][]string{Cgroupfs: {"/", "/a:b@c-/é"}, Systemd: {"-.slice", `a\x2db-c_d.0.slice`}} {
		for _, g := range given {
			if _, _, err := (Layout{Driver: driver}).Pod("P", g); err != nil {
				t.Errorf("%s: parent %q: %v", driver, g, err)
			}
		}
	}
	for driver, names := range map[Driver][]string{
		Cgroupfs: {"/a/" + strings.Repeat("x", 256), strings.Repeat("/"+strings.Repeat("x", 200), 11), strings.Repeat("/x", 1000)},
		Systemd:  {"/" + strings.Repeat("x", 250) + ".slice", "/" + strings.Repeat("x-", 120) + "x.slice"},
	} {
		for _, given := range names {
			if _, _, err := (Layout{Driver: driver}).Pod("P", given); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "linux.cgroup_parent: ") || len(err.Error()) > 500 {
				t.Errorf("%s: a parent of %d bytes: %v", driver, len(given), err)
			}
		}
	}
	for driver, given := range map[Driver]string{Cgroupfs: "/a/" + strings.Repeat("x", 255), Systemd: strings.Repeat("x", 249) + ".slice"} {
		if _, _, err := (Layout{Driver: driver}).Pod("P", given); err != nil {
			t.Errorf("%s: the longest name: %v", driver, err)
		}
	}
	if got := (Layout{Driver: Systemd}).Leaf("a.slice", "C"); got != "a.slice:sunaba:C" {
		t.Errorf("systemd leaf is %q", got)
	}
	for driver, want := range map[Driver]string{Cgroupfs: "/sunaba/shims/wasm-1", Systemd: "/sunaba.slice/sunaba-shims.slice/sunaba-wasm-1.scope"} {
		l := Layout{Driver: driver}
		if got := l.Path(l.ShimLeaf("wasm-1")); got != want {
			t.Errorf("%s: the leaf of a shared shim is at %q, want %q", driver, got, want)
		}
	}
	for driver, want := range map[Driver]string{Cgroupfs: "/sunaba/compiler-1a/c", Systemd: "/sunaba.slice/sunaba-compiler1a.slice/sunaba-c.scope"} {
		l := Layout{Driver: driver}
		if got := l.Path(l.Leaf(l.CompilerParent("1a"), "c")); got != want {
			t.Errorf("%s: a compilation is at %q, want %q", driver, got, want)
		}
	}
	id := strings.Repeat("0f", idLength/2)
	for driver, parent := range map[Driver]string{Cgroupfs: "/a", Systemd: "a.slice"} {
		l := Layout{Driver: driver}
		if got := l.leafID(path.Base(l.Path(l.Leaf(parent, id)))); got != id {
			t.Errorf("%s: the leaf's id is %q, want %q", driver, got, id)
		}
		for _, other := range []string{"", "x", id + "0", id[1:] + "x", "sunaba-" + id, "other-" + id + ".scope", "sunaba-x.scope", id + ".scope"} {
			if got := l.leafID(other); got != "" {
				t.Errorf("%s: folder %q is that of %q", driver, other, got)
			}
		}
	}
}

// What cannot be there is not there: a server removes the pods of one that took such names.
func TestRemoveWhatCannotBe(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Manager{Layout: Layout{Driver: Cgroupfs}, Mounts: &cgroup.Mounts{Unified: root}}
	for _, parent := range []string{"/" + strings.Repeat("x", 256), strings.Repeat("/"+strings.Repeat("x", 200), 30), "/file", "/missing"} {
		leaf := m.Leaf(parent, "C")
		if err := m.RemoveLeaf(leaf); err != nil {
			t.Errorf("remove %.40q: %v", leaf, err)
		}
		if err := m.End(t.Context(), leaf); err != nil {
			t.Errorf("end %.40q: %v", leaf, err)
		}
	}
}

// The test makes real cgroups and removes them.
func TestPodCgroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("must run as root")
	}
	m, err := New("cgroupfs")
	if err != nil {
		t.Fatal(err)
	}
	parent, _, err := m.Pod("", "/cgrouptest-"+filepath.Base(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	leaf := m.Leaf(parent, "leaf")
	if err := m.MakePod(parent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.RemovePod(parent); err != nil {
			t.Error(err)
		}
		if err := m.RemovePod(parent); err != nil {
			t.Error("second removal:", err)
		}
		for _, d := range m.Roots() {
			if _, err := os.Stat(filepath.Join(d, m.Path(parent))); err == nil {
				t.Errorf("left in %s", d)
			}
		}
	})
	memory := func() string {
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			if data, err := os.ReadFile(m.Group(parent).File("memory", name)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
		return "none"
	}
	free := memory()
	for _, l := range []struct {
		limits Limits
		want   string
	}{
		{Limits{Shares: 512, Quota: 50000, Period: 100000, Memory: 64 << 20}, "67108864"},
		{Limits{Memory: 32 << 20}, "33554432"},
		{Limits{}, free},
	} {
		if err := m.LimitPod(parent, l.limits); err != nil || memory() != l.want {
			t.Errorf("limits %+v: memory is %s, want %s, %v", l.limits, memory(), l.want, err)
		}
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("0f", idLength/2)
	if err := m.Place(m.Leaf(parent, id), cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if ids, err := m.Leaves(parent); err != nil || !slices.Equal(ids, []string{id}) {
		t.Errorf("leaves %v, %v", ids, err)
	}
	if ids, err := m.Leaves(parent + "x"); err != nil || len(ids) > 0 {
		t.Errorf("leaves of a parent that is not there: %v, %v", ids, err)
	}
	if err := m.Place(leaf, cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := m.RemoveLeaf(m.Leaf(parent, id)); err != nil {
		t.Error(err)
	}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if !m.Has(controller) {
			continue
		}
		procs, err := os.ReadFile(m.Group(leaf).File(controller, "cgroup.procs"))
		if err != nil || strings.TrimSpace(string(procs)) == "" {
			t.Errorf("%s: the process is not in the leaf: %q, %v", controller, procs, err)
		}
	}
	if err := m.End(t.Context(), leaf); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("a process of a leaf that was ended: %v", err)
	}
	if err := errors.Join(m.End(t.Context(), leaf), m.End(t.Context(), m.Leaf(parent, "missing"))); err != nil {
		t.Errorf("end where nothing runs: %v", err)
	}
	if m.Unified == "" { // a thread of this process is there, as while a process is born, and another process that is to stay
		spared := exec.Command("sleep", "600")
		entered, leave := make(chan error), make(chan struct{})
		go thread.Run(func() {
			err := m.Group(leaf).EnterThread()
			entered <- errors.Join(err, spared.Start())
			<-leave
		})
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		if err := m.End(t.Context(), leaf, spared.Process.Pid); err != nil {
			t.Error(err)
		}
		if err := spared.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the process that was to be left alone: %v", err)
		}
		close(leave)
		if err := m.End(t.Context(), leaf); err != nil {
			t.Error(err)
		}
		_ = spared.Wait()
	}
	if err := m.RemoveLeaf(leaf); err != nil {
		t.Error(err)
	}
}

// The folder of pods without a parent weighs as much as one process for each processor, unless its
// owner gave it another weight.
func TestOwnParentWeight(t *testing.T) {
	for _, c := range []struct {
		unified    bool
		file, want string
	}{
		{false, "cpu.shares", strconv.Itoa(1024 * runtime.NumCPU())},
		{true, "cpu.weight", strconv.FormatUint(cgroup.Weight(uint64(1024*runtime.NumCPU())), 10)},
	} {
		dir := t.TempDir()
		if err := cgroup.Weigh(dir, c.unified, ownShares()); err != nil {
			t.Errorf("without the cpu controller: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, c.file)); err == nil {
			t.Errorf("%s was made where there is none", c.file)
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := cgroup.Weigh(dir, c.unified, ownShares()); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || string(got) != c.want {
			t.Errorf("%s is %q, want %s, %v", c.file, got, c.want, err)
		}
	}

	m, err := New("cgroupfs")
	if err != nil {
		t.Fatal(err)
	}
	name := "cpu.shares"
	if m.Unified != "" {
		name = "cpu.weight"
	}
	weight := func() string {
		data, _ := os.ReadFile(m.Group(ownParent).File("cpu", name))
		return strings.TrimSpace(string(data))
	}
	want := weight() // of a running server's pods
	if want == "" {
		value := ownShares()
		if m.Unified != "" {
			value = cgroup.Weight(value)
		}
		want = strconv.FormatUint(value, 10)
	}
	for _, id := range []string{"weight-1", "weight-2"} {
		parent, _, err := m.Pod(id, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.MakePod(parent); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.RemovePod(parent); err != nil {
				t.Error(err)
			}
		})
		if got := weight(); got != want {
			t.Errorf("with pod %s %s is %q, want %s", id, name, got, want)
		}
	}
}

// The folder of all pods is removed from every hierarchy once it is empty, and from none before.
func TestPrune(t *testing.T) {
	roots := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	m := &Manager{Mounts: &cgroup.Mounts{V1: map[string]string{"cpu": roots[0], "memory": roots[1]}, Hybrid: roots[2]}}
	there := func() (n int) {
		for _, root := range roots {
			for _, folder := range []string{ownShims, ownParent} {
				if _, err := os.Stat(filepath.Join(root, folder)); err == nil {
					n++
				}
			}
		}
		return n
	}
	if err := os.MkdirAll(filepath.Join(roots[1], ownParent), 0o755); err != nil { // it is missing in the others
		t.Fatal(err)
	}
	if m.prune(); there() != 0 {
		t.Errorf("%d empty folders are left", there())
	}
	for _, busy := range []string{ownShims + "/wasm", ownParent + "/pod-a"} {
		for _, root := range roots {
			if err := errors.Join(os.MkdirAll(filepath.Join(root, ownShims), 0o755), os.MkdirAll(filepath.Join(root, busy), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		m.prune()
		for _, root := range roots {
			if err := os.Remove(filepath.Join(root, busy)); err != nil {
				t.Errorf("while %s was there: %v", busy, err)
			}
		}
	}
	if m.prune(); there() != 0 {
		t.Errorf("%d empty folders are left", there())
	}
}

// In version 1 the kernel gives what is created below the folder of all pods its processors.
func TestProcessorsFromTheStart(t *testing.T) {
	root := t.TempDir()
	m := &Manager{Mounts: &cgroup.Mounts{V1: map[string]string{"name=systemd": root}}}
	if err := m.create(m.Group(ownParent + "/pod-a")); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{ownParent: "1", ownParent + "/pod-a": ""} { // below, the kernel has it from above
		if got, _ := os.ReadFile(filepath.Join(root, folder, "cgroup.clone_children")); string(got) != want {
			t.Errorf("%s: %q, want %q", folder, got, want)
		}
	}
}
