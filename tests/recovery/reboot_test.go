package recovery

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/tests/node"
)

// TestReboot takes from a node what a restart of the machine takes: every process and mount, the
// state folder, cgroups and links; and the records are of another boot. Pods are NotReady then, and
// how containers ended before is still known. What the network gave out is given back, by DEL for
// the pods on record.
func TestReboot(t *testing.T) {
	for _, net := range []setting{embedded, cni} {
		alone(t, net, func(m *machine) {
			if err := os.MkdirAll(filepath.Join(m.Root, "network", "cni"), 0o700); err != nil { // made for the first pod, and stays
				t.Error(err)
			}
			m.before = m.look()
			all, err := m.peopled("runc", "wasm")
			if err != nil {
				t.Error(err)
				return
			}
			m.kill()
			if err := m.reboot(); err != nil {
				t.Error(err)
				return
			}
			if err := m.restart(); err != nil {
				t.Error(err)
				return
			}
			if given, _ := filepath.Glob(filepath.Join(m.given, "at-*")); m.given != "" && len(given) > 0 {
				t.Errorf("%s: still given out: %q", net, given)
			}
			for _, s := range all {
				s.lost(s.pod.id)
				s.c.endedAs(unknown)
				s.d.endedAs(byItself)
				s.e.endedAs(unknown) // it cannot be started any more
				if _, err := m.run(s.handler, s.config); err == nil {
					t.Errorf("%s: the name of a pod that is on record is free", net)
				}
				if err := s.pod.remove(); err != nil {
					t.Errorf("%s: %v", net, err)
				}
				p, err := m.run(s.handler, s.config)
				if err != nil {
					t.Errorf("%s: a new pod: %v", net, err)
					continue
				}
				p.works()
			}
			m.end()
		})
	}
}

// peopled makes a pod of preparePod's for each handler.
func (m *machine) peopled(handlers ...string) ([]*stage, error) {
	var all []*stage
	for _, handler := range handlers {
		s := &stage{machine: m, handler: handler}
		if err := preparePod(s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// reboot takes away what does not outlive the machine, and dates the records back.
func (m *machine) reboot() error {
	if err := m.PowerOff(m.pods); err != nil {
		return err
	}
	return m.backdate()
}

// backdate lets the records of pods be those of an earlier boot.
func (m *machine) backdate() error {
	files, err := filepath.Glob(filepath.Join(m.Root, "state", "sandboxes", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var whole struct {
			Version int            `json:"version"`
			ID      string         `json:"id"`
			Record  map[string]any `json:"record"`
		}
		for line := range durable.NewestFirst(data) {
			if json.Unmarshal(line, &whole) == nil {
				break
			}
		}
		if whole.Record == nil {
			continue // its first write was cut short
		}
		whole.Record["bootID"] = "an earlier one"
		if data, err = json.Marshal(whole); err != nil {
			return err
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// A container's record that cannot be read, and a pod's, keep nothing else from being recovered;
// what belongs to nobody is taken away at the start.
func TestDamageAndOrphans(t *testing.T) {
	alone(t, embedded, func(m *machine) {
		m.before = m.look()
		all, err := m.peopled("runc", "wasm", "runc")
		if err != nil {
			t.Error(err)
			return
		}
		good, halved, lost := all[0], all[1], all[2]
		status, err := good.c.status()
		if err != nil {
			t.Error(err)
			return
		}
		m.kill()
		nobody := strings.Repeat("0123456789abcdef", 4)
		ofContainer, err := m.RecordFile("containers", halved.c.id) // its pod and siblings are sound
		if err != nil {
			t.Error(err)
			return
		}
		ofPod, err := m.RecordFile("sandboxes", lost.pod.id)
		if err != nil {
			t.Error(err)
			return
		}
		broken := []string{ofContainer, ofPod}
		for _, file := range broken {
			if err := os.WriteFile(file, []byte(`{"version": 1, "record": }`), 0o600); err != nil {
				t.Error(err)
			}
		}
		for _, dir := range []string{filepath.Join(m.Root, "sandboxes"), filepath.Join(m.Root, "volumes"), filepath.Join(m.State, "sandboxes")} {
			if err := os.Mkdir(filepath.Join(dir, nobody), 0o755); err != nil {
				t.Error(err)
			}
		}
		if err := m.restart(); err != nil {
			t.Error(err)
			return
		}
		if now, err := good.c.status(); err != nil || now.GetState() != cri.ContainerState_CONTAINER_RUNNING || now.pid != status.pid {
			t.Errorf("a sound container: %v, %v", now, err)
		}
		if pids := halved.c.processes(); len(pids) > 0 {
			t.Errorf("processes %v of a container whose record is broken", pids)
		}
		halved.d.ended(7, "Error")
		if found := m.listed(halved.config); len(found) != 1 || found[0].GetState() != cri.PodSandboxState_SANDBOX_READY {
			t.Errorf("the pod of a container whose record is broken: %v", found)
		}
		if found := m.listed(lost.config); len(found) != 0 {
			t.Errorf("a pod whose record is broken: %v", found)
		}
		if pids := processesBelow(node.PodCgroup(lost.pod.id)); len(pids) > 0 {
			t.Errorf("processes %v of a pod whose record is broken", pids)
		}
		for _, file := range broken { // somebody has looked at them
			if err := os.Remove(file + ".damaged"); err != nil {
				t.Error(err)
			}
		}
		m.sound("with what is sound")
		for _, s := range []*stage{good, halved} {
			if err := s.pod.remove(); err != nil {
				t.Error(err)
			}
		}
		if p, err := m.run("runc", lost.config); err != nil {
			t.Errorf("a new pod of the name of one whose record is broken: %v", err)
		} else {
			p.works()
		}
		m.end()
	})
}

// A server that finds a record of a newer release does not start, says so, and touches nothing: the
// newer release goes on with all pods.
func TestRecordOfANewerRelease(t *testing.T) {
	alone(t, embedded, func(m *machine) {
		m.before = m.look()
		s := &stage{machine: m, handler: "runc"}
		if err := preparePod(s); err != nil {
			t.Error(err)
			return
		}
		m.kill()
		file, err := m.RecordFile("containers", s.c.id)
		if err != nil {
			t.Error(err)
			return
		}
		old, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			return
		}
		if err := os.WriteFile(file, append(slices.Clone(old), "{\"version\": 3}\n"...), 0o600); err != nil {
			t.Error(err)
			return
		}
		const text = "start the newer release, and remove the pods with it before you go back to this one"
		if err := m.restart(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("a start with a record of a newer release: %v", err)
		}
		for _, args := range [][]string{{"check"}, {"check", "--repair"}} {
			cmd := exec.Command(filepath.Join(world.bin, "sunaba"), append(args, "--root", m.Root, "--state", m.State, "--config", m.ConfigFile)...)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), text) || strings.Contains(string(out), "not on record") {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
		if err := os.WriteFile(file, old, 0o600); err != nil {
			t.Error(err)
		}
		if err := m.restart(); err != nil {
			t.Error(err)
			return
		}
		s.c.running()
		s.d.ended(7, "Error")
		if _, err := s.c.ticks(); err != nil {
			t.Error(err)
		}
		m.end()
	})
}

// A power cut may bring back the record of a container that was removed with its pod, for which
// there is no sync: the next server removes it again, and does not complain.
func TestRecordOfAContainerWithoutItsPod(t *testing.T) {
	alone(t, embedded, func(m *machine) {
		m.before = m.look()
		for _, handler := range []string{"runc", "wasm"} {
			p, err := m.run(handler, m.podConfig("removed", shape(0)))
			if err != nil {
				t.Error(err)
				return
			}
			c, err := p.begin(job(handler))
			if err != nil {
				t.Error(err)
				return
			}
			c.ended(7, "Error")
			file, err := m.RecordFile("containers", c.id)
			if err != nil {
				t.Error(err)
				return
			}
			record, err := os.ReadFile(file)
			if err != nil {
				t.Error(err)
				return
			}
			if err := p.remove(); err != nil {
				t.Error(err)
			}
			m.kill()
			if err := m.reboot(); err != nil {
				t.Error(err)
			}
			mark, _ := os.Stat(m.LogFile)
			if err := os.WriteFile(file, record, 0o600); err != nil {
				t.Error(err)
			}
			if err := m.restart(); err != nil {
				t.Error(err)
				return
			}
			list, err := m.ListContainers(m.ctx, &cri.ListContainersRequest{})
			if err != nil || len(list.GetContainers()) != 0 {
				t.Errorf("%s: %v, %v", handler, list, err)
			}
			m.sound("without the pod")
			if said := m.saidSince(mark); strings.Contains(said, c.id) && strings.Contains(said, "level=ERROR") {
				t.Errorf("%s: the daemon said:\n%s", handler, said)
			}
		}
		m.end()
	})
}

// What a server had begun to remove of a pod when it died is removed by the next one, and is not
// there for anybody. A container that lacks its root filesystem alone is damaged, and stays until
// its client removes it.
func TestHalfRemovedContainers(t *testing.T) {
	alone(t, embedded, func(m *machine) {
		m.before = m.look()
		all, err := m.peopled("runc", "wasm")
		if err != nil {
			t.Error(err)
			return
		}
		damaged, err := all[0].pod.begin(job("runc"))
		if err != nil {
			t.Error(err)
			return
		}
		damaged.ended(7, "Error")
		for _, s := range all {
			if err := os.Remove(filepath.Join(m.State, "sandboxes", s.pod.id, s.e.id, "config.json")); err != nil {
				t.Error(err)
			}
			_, err := m.UpdateContainerResources(m.ctx, &cri.UpdateContainerResourcesRequest{ContainerId: s.e.id, Linux: &cri.LinuxContainerResources{CpuShares: 512}})
			m.refused("an update of half a "+s.pod.handler+" container", err, codes.FailedPrecondition)
		}
		m.kill()
		store, err := images.Open(images.Options{
			Root: filepath.Join(m.Root, "images"), Logger: slog.New(slog.DiscardHandler),
			Handlers: []images.HandlerPlatforms{
				{Name: "runc", Default: true, Platforms: []ocispec.Platform{{OS: "linux", Architecture: goruntime.GOARCH}}},
				{Name: "wasm", Platforms: []ocispec.Platform{{OS: "wasip1", Architecture: "wasm"}}},
			},
		})
		if err != nil {
			t.Error(err)
			return
		}
		var half []*container
		for _, s := range all {
			half = append(half, s.d, s.e) // one that has ended, and one that has not been started
		}
		for _, c := range append(half, damaged) {
			if err := store.RemoveRootFS(t.Context(), c.id); err != nil {
				t.Error(err)
			}
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range half {
			// The shim has mounts in there, of a start ahead, until it has waited for that for long
			// enough.
			var err error
			if !node.Within(node.Patience, func() bool {
				err = os.RemoveAll(filepath.Join(m.State, "sandboxes", c.pod.id, c.id))
				return err == nil
			}) {
				t.Error(err)
			}
		}
		if err := m.restart(); err != nil {
			t.Error(err)
			return
		}
		for _, c := range half {
			_, err := c.status()
			m.refused("half a "+c.pod.handler+" container", err, codes.NotFound)
			if _, err := c.pod.begin(c.config); err != nil {
				t.Errorf("another one of its name: %v", err)
			}
		}
		damaged.ended(7, "Error")
		if err := damaged.remove(); err != nil {
			t.Error(err)
		}
		m.sound("after a start")
		for _, s := range all {
			s.c.running()
			if err := s.pod.remove(); err != nil {
				t.Error(err)
			}
		}
		m.end()
	})
}
