package recovery

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// cuts is how often the power is cut.
const cuts = 6

// disk is an ext4 in a file, mounted where a node has its folder.
type disk struct{ file, dir string }

// newDisk makes and mounts one. What is not synced stays in memory for long.
func newDisk() (*disk, error) {
	d := &disk{file: filepath.Join(world.folder, fmt.Sprintf("disk-%d.img", node.Serial()))}
	f, err := os.Create(d.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(96 << 20); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	if d.dir, err = os.MkdirTemp(world.folder, "disk-"); err != nil {
		return nil, err
	}
	return d, d.mount()
}

func (d *disk) mount() error {
	if out, err := exec.Command("mount", "-o", "loop,commit=300", d.file, d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// sync writes everything, as time would have done.
func (d *disk) sync() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// cut copies what of the disk has reached it at one moment. A copy during which something was
// written is made again: parts of different age are what no loss of power leaves.
func (d *disk) cut() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(d.dir, &st); err != nil {
		return "", err
	}
	writes := func() (string, bool) {
		data, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
		fields := strings.Fields(string(data)) // Documentation/block/stat.rst
		if err != nil || len(fields) < 9 {
			return "", false
		}
		return fields[4], fields[8] == "0"
	}
	file := d.file + ".cut"
	for range 200 {
		before, idle := writes()
		if err := copySparse(file, d.file); err != nil {
			return "", err
		}
		if after, still := writes(); idle && still && before == after {
			return file, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return "", fmt.Errorf("disk %q is written all the time", d.file)
}

func copySparse(to, from string) error {
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

// exchange puts the copy in the place of the disk, as if the machine had started again.
func (d *disk) exchange(file string) error {
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount disk: %w", err)
	}
	if err := os.Rename(file, d.file); err != nil {
		return err
	}
	return d.mount()
}

// TestPowerCut cuts the power of a node at moments of pulls and of the life of pods. From what had
// reached the disk, the next daemon starts and is ready, its images are whole, what was running is
// over, and pulls and pods go on.
func TestPowerCut(t *testing.T) {
	n := cuts
	if testing.Short() {
		n = 2
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	alone(t, onDisk, func(m *machine) {
		ids := map[string]string{}
		for round := range n {
			if err := m.powerCut(time.Duration(random.IntN(2500))*time.Millisecond, ids); err != nil {
				t.Errorf("cut %d: %v\n%s", round, err, m.DaemonLog())
				return
			}
			if t.Failed() {
				t.Errorf("at cut %d", round)
				return
			}
		}
	})
}

// powerCut lets the node work for a while, cuts its power, starts it again and looks at it. ids are
// the images' ids.
func (m *machine) powerCut(after time.Duration, ids map[string]string) error {
	if err := m.disk.sync(); err != nil { // the configuration, and what the round before has looked at
		return err
	}
	var over atomic.Bool
	ended := make(chan struct{})
	m.beside(func() {
		defer close(ended)
		for !over.Load() {
			m.work()
		}
	})
	time.Sleep(after)
	if err := unix.Kill(m.DaemonPID(), unix.SIGSTOP); err != nil {
		return err
	}
	copied, err := m.disk.cut()
	if err != nil {
		return err
	}
	over.Store(true)
	m.kill()
	<-ended
	if err := m.reboot(); err != nil {
		return err
	}
	if err := m.disk.exchange(copied); err != nil {
		return err
	}
	m.note()
	// The folder of the state is in memory on a real machine.
	if err := os.RemoveAll(m.State); err != nil {
		return err
	}
	if err := m.backdate(); err != nil {
		return err
	}
	if err := m.restart(); err != nil {
		return err
	}
	return m.afterPowerCut(ids)
}

// work is a while in the life of a node. Any of it may be cut off.
func (m *machine) work() {
	for i, ref := range []string{world.busybox, world.guest} {
		handler := []string{"runc", "wasm"}[i]
		_, _ = m.PullImage(m.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
		if p, err := m.run(handler, m.podConfig("cut", shape(i))); err == nil {
			if c, err := p.begin(job(handler)); err == nil {
				_ = c.says("three")
			}
			_, _ = p.begin(counts(handler))
			if node.Serial()%2 == 0 {
				_ = p.remove()
				_, _ = m.RemoveImage(m.ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: ref}})
			}
		}
	}
}

// afterPowerCut looks at a node that was started again.
func (m *machine) afterPowerCut(ids map[string]string) error {
	m.sound("after a power cut")
	check := exec.Command(filepath.Join(world.bin, "sunaba"), "images", "check", "--root", m.Root, "--state", m.State, "--config", m.ConfigFile)
	if out, err := check.CombinedOutput(); err != nil {
		m.problem("images check: %v\n%s", err, out)
	}
	pods, err := m.ListPodSandbox(m.ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, p := range pods.GetItems() {
		if p.GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
			m.problem("pod %s is %v after a restart of the machine", p.GetId(), p.GetState())
		}
	}
	if err := m.RemovePods(m.ctx); err != nil {
		return err
	}
	for i, ref := range []string{world.busybox, world.guest} {
		answer, err := m.PullImage(m.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
		if err != nil {
			return fmt.Errorf("pull %q: %w", ref, err)
		}
		if ids[ref] == "" {
			ids[ref] = answer.GetImageRef()
		}
		if ids[ref] != answer.GetImageRef() {
			m.problem("%s is %s, it was %s", ref, answer.GetImageRef(), ids[ref])
		}
		handler := []string{"runc", "wasm"}[i]
		p, err := m.run(handler, m.podConfig("after", shape(i)))
		if err != nil {
			return err
		}
		p.works()
		if err := p.remove(); err != nil {
			return err
		}
	}
	m.sound("after work")
	return nil
}
