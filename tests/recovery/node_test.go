package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/leftovers"
	"github.com/sunaba-project/sunaba/tests/node"
)

// startBound is how long a daemon may take from its start until it is ready.
const startBound = time.Minute

const config = `
cgroup_driver = %q
[network]
conf_dir = %q
bin_dirs = [%q]
[handlers.runc]
type = "oci"
binary = "runc"
default = true
[handlers.wasm]
type = "wasm"
`

const crunConfig = `
[handlers.crun]
type = "oci"
binary = "crun"
`

// machine is a worker's node. All its methods are called by the worker's goroutine, whose thread is
// in the network and mount namespaces of the node, or by one that beside started.
type machine struct {
	*node.Node
	ctx     context.Context
	pods    []string // ids of all pods that ever were: their cgroups must go
	stay    []*container
	before  leftovers.Snapshot
	disk    *disk.Image // that the node is on, if it has one of its own
	given   string      // folder with a file for each address that the CNI plugin has given out
	spaces  []*os.File
	problem func(format string, args ...any)
}

// alone calls use with a node in a network and a mount namespace of its own, and takes the node
// away.
func alone(t *testing.T, kind setting, use func(m *machine)) {
	var hierarchies []string
	err := node.Apart(func() {
		m, err := begin(t, kind)
		if err != nil {
			t.Error(err)
			return
		}
		use(m)
		m.problem = t.Errorf
		if !m.Alive() {
			m.problem("the daemon has ended")
		} else if err := m.RemovePods(m.ctx); err != nil {
			m.problem("remove the pods: %v", err)
		}
		log, _ := os.ReadFile(m.LogFile)
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", m.DaemonPID())) // a daemon removes cgroups where it finds hierarchies
		for line := range strings.Lines(string(table)) {
			if strings.Contains(line, "cgroup") {
				hierarchies = append(hierarchies, line)
			}
		}
		if forced, err := m.Close(); err != nil || len(forced) > 0 {
			m.problem("close the node: %v, left: %q", err, forced)
		}
		m.noCgroups(string(log), hierarchies)
	})
	if err != nil {
		t.Error(err)
	}
}

// beside calls a function in another goroutine, in the node's namespaces too.
func (m *machine) beside(call func()) {
	go func() {
		runtime.LockOSThread() // never unlocked
		err := unix.Unshare(unix.CLONE_FS)
		for _, space := range m.spaces {
			err = errors.Join(err, unix.Setns(int(space.Fd()), 0))
		}
		if err != nil {
			panic(fmt.Errorf("enter the namespaces of a node: %w", err))
		}
		call()
	}()
}

// setting is what is special about a node.
type setting string

const (
	embedded setting = "embedded network"
	cni      setting = "CNI"  // by the plugin of criserver/network's tests
	withCrun setting = "crun" // has a handler of this name
	ownShims setting = "own"  // each pod has a shim of its own
	ownCrun  setting = "own crun"
	onDisk   setting = "disk" // has its folder on a disk of its own
	ownDisk  setting = "own disk"
)

// cniConfig is a network of that plugin, which keeps what it gave out in a folder.
const cniConfig = `{"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "tiny", "dir": %q, "capabilities": {"portMappings": true}}]}`

func begin(t *testing.T, kind setting) (*machine, error) {
	if err := world.registry.Join(); err != nil {
		return nil, err
	}
	var spaces []*os.File
	for _, name := range []string{"net", "mnt"} {
		f, err := os.Open("/proc/thread-self/ns/" + name)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { f.Close() })
		spaces = append(spaces, f)
	}
	lines := config
	if kind == withCrun || kind == ownCrun {
		lines += crunConfig
		if err := node.HideUnified(filepath.Join(world.folder, fmt.Sprintf("cgroup-%d", node.Serial()))); err != nil {
			return nil, err
		}
	}
	if kind == ownShims || kind == ownCrun || kind == ownDisk {
		lines = node.OwnShims(lines)
	}
	parent, own := world.folder, (*disk.Image)(nil)
	if kind == onDisk || kind == ownDisk {
		var err error
		if own, err = disk.NewImage(world.folder); err != nil {
			return nil, err
		}
		parent = own.Dir
	}
	dir, err := os.MkdirTemp(parent, "node-")
	if err != nil {
		return nil, err
	}
	given := ""
	if kind == cni {
		if given, err = os.MkdirTemp(world.folder, "given-"); err != nil {
			return nil, err
		}
		if err := os.Mkdir(filepath.Join(dir, "cni"), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "cni", "10.conflist"), fmt.Appendf(nil, cniConfig, given), 0o600); err != nil {
			return nil, err
		}
	}
	// The client's connections are made by threads in other mount namespaces, which do not see a
	// disk.
	socket := filepath.Join(world.folder, filepath.Base(dir)+".sock")
	n, err := node.Start(t.Context(), node.Options{Bin: world.bin, Dir: dir, Socket: socket, Config: fmt.Sprintf(lines, node.Driver(), filepath.Join(dir, "cni"), world.bin)})
	if err != nil {
		_, swept := node.Sweep(dir)
		return nil, errors.Join(err, swept)
	}
	m := &machine{Node: n, ctx: t.Context(), disk: own, given: given, spaces: spaces, problem: t.Errorf}
	for _, ref := range []string{world.busybox, world.guest} {
		if _, err := m.PullImage(m.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// settle starts the pods that live through every kill of this node, and takes the picture that
// every later one is compared with.
func (m *machine) settle() error {
	for i, handler := range []string{"runc", "wasm"} {
		p, err := m.run(handler, m.podConfig("stays-"+handler, shape(i)))
		if err != nil {
			return err
		}
		// From its first Linux container on, a shared shim has a folder for its runtime.
		first, err := p.begin(job("runc"))
		if err != nil {
			return err
		}
		first.ended(7, "Error")
		if err := first.remove(); err != nil {
			return err
		}
		c, err := p.begin(counts(handler))
		if err != nil {
			return err
		}
		m.stay = append(m.stay, c)
	}
	for _, c := range m.stay {
		if err := c.says("tick 3"); err != nil {
			return err
		}
		status, err := c.status()
		if err != nil {
			return err
		}
		c.pid, c.started = status.pid, status.GetStartedAt()
	}
	m.before = m.look()
	return nil
}

// undisturbed looks at the pods that stay.
func (m *machine) undisturbed() {
	for _, c := range m.stay {
		status, err := c.status()
		if err != nil {
			m.problem("a pod that stays: %v", err)
			continue
		}
		if status.GetState() != cri.ContainerState_CONTAINER_RUNNING || status.pid != c.pid || status.GetStartedAt() != c.started {
			m.problem("%s container that stays: %v, process %d, started %d; it was process %d, started %d",
				c.pod.handler, status.GetState(), status.pid, status.GetStartedAt(), c.pid, c.started)
		}
		n, err := c.ticks()
		if err != nil {
			m.problem("%s container that stays: %v", c.pod.handler, err)
		}
		if !node.Within(node.Patience, func() bool { now, _ := c.ticks(); return now > n }) {
			m.problem("%s container that stays: its log ends with line %d", c.pod.handler, n)
		}
		answer, err := m.PodSandboxStatus(m.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: c.pod.id})
		if err != nil || answer.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_READY || answer.GetStatus().GetNetwork().GetIp() != c.pod.ip {
			m.problem("pod that stays: %v, %v; its address was %s", answer.GetStatus(), err, c.pod.ip)
		}
	}
}

// kill ends the daemon, if nobody has yet, and notes which pods it knew.
func (m *machine) kill() {
	if err := m.SignalDaemon(unix.SIGKILL); err != nil {
		m.problem("kill the daemon: %v", err)
	}
	for _, c := range m.stay {
		if err := unix.Kill(c.pid, 0); err != nil {
			m.problem("%s container that stays: its process %d: %v", c.pod.handler, c.pid, err)
		}
	}
	m.note()
}

// note remembers the pods that there is anything of.
func (m *machine) note() {
	add := func(id string) {
		if !slices.Contains(m.pods, id) {
			m.pods = append(m.pods, id)
		}
	}
	for _, dir := range []string{filepath.Join(m.State, "sandboxes"), filepath.Join(m.Root, "sandboxes")} {
		entries, _ := os.ReadDir(dir) // there is none before the first pod
		for _, e := range entries {
			add(e.Name())
		}
	}
	records, err := state.Read(filepath.Join(m.Root, "state", "sandboxes"), state.CheckSandbox)
	if err != nil {
		m.problem("%v", err)
	}
	for id := range records.Records {
		add(id)
	}
}

// restart starts the daemon.
func (m *machine) restart() error {
	begun := time.Now()
	if err := m.StartDaemon(m.ctx); err != nil {
		return err
	}
	if took := time.Since(begun); took > node.Slow(startBound) {
		m.problem("the daemon took %v to start", took)
	}
	return nil
}

// sound lets the node check itself.
func (m *machine) sound(when string) {
	cmd := exec.Command(filepath.Join(world.bin, "sunaba"), "check", "--root", m.Root, "--state", m.State, "--config", m.ConfigFile)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "0 findings") {
		m.problem("check %s: %v\n%s", when, err, out)
	}
}

var processState = regexp.MustCompile(`^(process \d+) \(.\)`)

// look sees all that belongs to the node. Images stay.
func (m *machine) look() leftovers.Snapshot {
	m.note()
	scope := m.Scope()
	scope.Network = true
	for _, id := range m.pods {
		scope.Cgroups = append(scope.Cgroups, strings.TrimPrefix(node.PodCgroup(id), "/"))
	}
	skip := []string{m.Logs, m.LogFile, filepath.Join(m.Root, "wasm")}
	if m.given != "" {
		scope.Dirs = append(scope.Dirs, m.given)
		skip = append(skip, filepath.Join(m.given, "log"))
	}
	scope.SkipFile = func(path string) bool { return slices.Contains(skip, path) || node.FreeRecord(path) }
	snapshot, err := leftovers.Take(scope)
	if err != nil {
		m.problem("%v", err)
	}
	daemon := fmt.Sprintf("process %d ", m.DaemonPID())
	snapshot = slices.DeleteFunc(snapshot, func(line string) bool { return strings.HasPrefix(line, daemon) })
	for i, line := range snapshot {
		snapshot[i] = processState.ReplaceAllString(line, "$1")
	}
	slices.Sort(snapshot)
	return snapshot
}

// noCgroups wants nothing of any pod that ever was in any hierarchy of the machine.
func (m *machine) noCgroups(log string, hierarchies []string) {
	var left []string
	if !node.Within(node.Patience, func() bool { left = m.cgroups(); return len(left) == 0 }) {
		about := slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool {
			return !slices.ContainsFunc(left, func(dir string) bool { return strings.Contains(line, filepath.Base(dir)[len("pod-"):]) })
		})
		m.problem("cgroups of pods that are gone:\n%s\nthe log of the daemons says of these pods:\n%s\nthe last daemon's hierarchies:\n%s",
			strings.Join(left, "\n"), strings.Join(about, "\n"), strings.Join(hierarchies, ""))
	}
}

func (m *machine) cgroups() []string {
	var left []string
	for _, id := range m.pods {
		dirs, err := filepath.Glob("/sys/fs/cgroup/*" + node.PodCgroup(id))
		if err != nil {
			m.problem("look for cgroups: %v", err)
		}
		left = append(left, dirs...)
		if dir := "/sys/fs/cgroup" + node.PodCgroup(id); !missing(dir) {
			left = append(left, dir)
		}
	}
	return left
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// clean wants nothing that was not there before. The kernel takes links and processes away in the
// background, so it looks for a while.
func (m *machine) clean() {
	var fresh []string
	if !node.Within(node.Patience, func() bool { fresh = m.look().Since(m.before); return len(fresh) == 0 }) {
		m.problem("left over:\n%s", strings.Join(fresh, "\n"))
	}
}
