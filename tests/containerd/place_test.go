package containerd

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/node"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// place is a folder with what an agent reads and keeps.
type place struct{ dir string }

func (p place) folder() string  { return filepath.Join(p.dir, "manifests") }
func (p place) root() string    { return filepath.Join(p.dir, "pods") }
func (p place) state() string   { return filepath.Join(p.dir, "memory") }
func (p place) podLogs() string { return filepath.Join(p.dir, "podlogs") }

// seen is a file in the folder that containers write to.
func (p place) seen(name string) string { return filepath.Join(p.dir, "seen", name) }

func (p place) saw(name string) string {
	data, err := os.ReadFile(p.seen(name))
	if err != nil {
		return ""
	}
	return string(data)
}

func (p place) make() error {
	for _, dir := range []string{p.folder(), p.state(), p.seen("")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	return nil
}

// write puts a file into the folder, with the tests' images and folders.
func (p place) write(name, text string) error {
	text = strings.NewReplacer("IMAGE", world.busybox, "GUEST", world.asLinux, "SEEN", p.seen("")).Replace(text)
	temp := filepath.Join(p.state(), "new")
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(p.folder(), name))
}

// options are those of an agent of a server, which continues from the records of the one before.
func (p place) options(server agent.CRI, log io.Writer) (o agent.Options, err error) {
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	facts, err := node.Read(node.Options{Name: "till-4", Root: p.dir, Pods: 50})
	if err != nil {
		return o, err
	}
	facts.Node.MaskedPaths, facts.Node.ReadonlyPaths = spec.DefaultPaths()
	facts.Node.HugePageSizes = nil
	set, err := desired.Open(desired.Options{Folders: []string{p.folder()}, Store: p.root(), Logger: logger})
	if err != nil {
		return o, err
	}
	vols, err := volumes.New(volumes.Options{
		Dir: p.root(), Memory: filepath.Join(p.state(), "volumes"), Claims: filepath.Join(p.root(), "claims"), Objects: set, Field: translate.VolumeField, Logger: logger,
		Resource: func(pod *corev1.Pod, ref *corev1.ResourceFieldSelector) (string, error) {
			return translate.ResourceFieldRef(translate.Input{Pod: pod, Node: facts.Node, Objects: set}, nil, ref)
		},
	})
	return agent.Options{
		CRI: server, Desired: set, Volumes: vols, Root: p.root(), EventsFile: filepath.Join(p.state(), "events"), Logs: p.podLogs(),
		Node: facts.Node, Labels: facts.Labels, Classes: func() []nodev1.RuntimeClass { return nil },
		Handlers: func() []string { return []string{"", "runc", "sunaba-wasm"} },
		Settings: cycle.Settings{HostIPs: facts.Node.IPs}, BootID: "boot-1",
		ParallelPulls: 2, LogLimits: logs.Limits{Size: 10 << 20, Files: 5}, SubUIDs: "/etc/subuid", SubGIDs: "/etc/subgid", UserAgent: "sunaba-test", Logger: logger,
	}, err
}
