package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
)

// cniWorld is a world with a CNI configuration of the plugin in testdata/tiny.
type cniWorld struct {
	*world
	o       Options
	plugins string // the plugin's own directory: attachments and log
}

// buildTiny builds the plugin once for all tests.
var buildTiny = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "tiny")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tiny")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./testdata/tiny")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(path)
})

func newCNIWorld(t *testing.T) *cniWorld {
	t.Helper()
	w := &cniWorld{world: newWorld(t)}
	w.o = w.options("a")
	binary, err := buildTiny()
	must(t, err)
	bin := filepath.Join(w.dir, "bin")
	w.plugins, w.o.ConfDir, w.o.BinDirs = filepath.Join(w.dir, "tiny"), filepath.Join(w.dir, "net.d"), []string{filepath.Join(w.dir, "none"), bin}
	for _, dir := range []string{bin, w.plugins, w.o.ConfDir} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, os.WriteFile(filepath.Join(bin, "tiny"), binary, 0o700))
	t.Cleanup(func() {
		if left := w.attachments(); len(left) != 0 {
			t.Errorf("attachments are left: %v", left)
		}
		records, _ := filepath.Glob(filepath.Join(w.o.StateDir, "cni", "*"))
		cached, _ := filepath.Glob(filepath.Join(w.o.CacheDir, "results", "*"))
		if len(records)+len(cached) != 0 {
			t.Errorf("files are left: %v %v", records, cached)
		}
		for _, dir := range []string{bin, w.plugins, w.o.ConfDir} {
			must(t, os.RemoveAll(dir))
		}
	})
	return w
}

// configure writes a configuration; extra is added to the plugin's part.
func (w *cniWorld) configure(file, name, extra string) {
	w.Helper()
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "plugins": [{"type": "tiny", "dir": %q, `+
		`"capabilities": {"portMappings": true, "dns": true, "bandwidth": true, "cgroupPath": true, "io.kubernetes.cri.pod-annotations": true}%s}]}`, name, w.plugins, extra)
	must(w, os.WriteFile(filepath.Join(w.o.ConfDir, file), []byte(conf), 0o600))
}

func (w *cniWorld) start() Network {
	w.Helper()
	n, err := start(w.o)
	must(w, err)
	w.Cleanup(func() {
		must(w, n.Close())
		must(w, Destroy(w.o))
	})
	return n
}

type call struct {
	Command, Network, ID, NetNS, IfName, Args string
	RuntimeConfig                             map[string]any
	PrevResult                                bool
}

// calls returns what the plugin was asked since the last time.
func (w *cniWorld) calls() (out []call) {
	w.Helper()
	data, err := os.ReadFile(filepath.Join(w.plugins, "log"))
	if err != nil && !os.IsNotExist(err) {
		w.Fatal(err)
	}
	must(w, os.RemoveAll(filepath.Join(w.plugins, "log")))
	for line := range strings.Lines(string(data)) {
		var c call
		must(w, json.Unmarshal([]byte(line), &c))
		out = append(out, c)
	}
	return out
}

func commands(calls []call) string {
	var names []string
	for _, c := range calls {
		names = append(names, c.Command)
	}
	return strings.Join(names, " ")
}

func (w *cniWorld) attachments() []string {
	w.Helper()
	held, err := filepath.Glob(filepath.Join(w.plugins, "at-*"))
	must(w, err)
	return held
}

func TestCNI(t *testing.T) {
	w := newCNIWorld(t)
	w.configure("20-second.conflist", "second", "")
	w.configure("10-first.conflist", "first", "")
	must(t, os.WriteFile(filepath.Join(w.o.ConfDir, "00-readme.txt"), []byte("no configuration"), 0o600))
	n := w.start()
	must(t, n.Status(t.Context()))
	if got := commands(w.calls()); got != "STATUS" {
		t.Errorf("calls %q, want STATUS", got)
	}
	if links := takeSnapshot(t, w.dir)["link"]; slices.Contains(links, w.o.Embedded.Bridge) {
		t.Error("the embedded network's bridge is there although nobody needs it")
	}
	p := w.pod(w.o, nil)
	p.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "TCP", HostIP: "127.0.0.1"}, {ContainerPort: 81}}
	p.Annotations = map[string]string{ingressBandwidth: "10M", "other": "x"}
	p.CgroupParent = "/pods/p"
	p.DNS = DNS{Servers: []string{"10.0.0.53"}, Searches: []string{"a.example"}}
	r := w.setup(n, p)
	if want := []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("fd77::5")}; !slices.Equal(r.IPs, want) || r.Interface != "eth0" {
		t.Errorf("addresses %v on %q, want those of eth0: %v", r.IPs, r.Interface, want)
	}
	serve(t, p.NetNS, 80, "p")
	w.wantAnswer("", "tcp", "10.77.0.2:80", "p")
	w.wantAnswer(p.NetNS, "tcp", "127.0.0.1:80", "p") // lo is ours to set up

	calls := w.calls()
	want := call{Command: "ADD", Network: "first", ID: p.ID, NetNS: p.NetNS, IfName: "eth0",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=test;K8S_POD_NAME=pod-1;K8S_POD_INFRA_CONTAINER_ID=" + p.ID + ";K8S_POD_UID=uid-1",
		RuntimeConfig: map[string]any{
			"portMappings": []any{map[string]any{"hostPort": 8080.0, "containerPort": 80.0, "protocol": "tcp", "hostIP": "127.0.0.1"}},
			"bandwidth":    map[string]any{"ingressRate": 10e6, "ingressBurst": float64(math.MaxInt32)},
			"dns":          map[string]any{"servers": []any{"10.0.0.53"}, "searches": []any{"a.example"}},
			"cgroupPath":   "/pods/p",

			"io.kubernetes.cri.pod-annotations": map[string]any{ingressBandwidth: "10M", "other": "x"},
		}}
	if len(calls) != 1 || !reflect.DeepEqual(calls[0], want) {
		t.Errorf("calls %+v, want %+v", calls, want)
	}

	// The configuration goes away and another one comes; the pod is torn down by the one that set
	// it up.
	must(t, os.Remove(filepath.Join(w.o.ConfDir, "10-first.conflist")))
	for try := range 2 {
		must(t, n.Teardown(t.Context(), p, r))
		calls = w.calls()
		if len(calls) != 1 {
			t.Fatalf("calls %+v, want one DEL", calls)
		}
		want.Command, want.PrevResult = "DEL", try == 0
		if !reflect.DeepEqual(calls[0], want) {
			t.Errorf("call %+v, want %+v", calls[0], want)
		}
	}
	w.wantSilence("", "tcp", "10.77.0.2:80")
}

// A plugin that names the pod's interface and not where it is has its addresses taken too.
func TestCNIResultWithoutSandbox(t *testing.T) {
	w := newCNIWorld(t)
	w.configure("10.conflist", "net", `, "noSandbox": true`)
	n := w.start()
	p := w.pod(w.o, nil)
	r := w.setup(n, p)
	if want := []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("fd77::5")}; !slices.Equal(r.IPs, want) {
		t.Errorf("addresses %v, want %v", r.IPs, want)
	}
	must(t, n.Teardown(t.Context(), p, r))
}

func TestCNIFailures(t *testing.T) {
	w := newCNIWorld(t)
	w.configure("10.conflist", "net", `, "fail": ["ADD"]`)
	n := w.start()
	p := w.pod(w.o, nil)
	_, err := n.Setup(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "told to fail ADD") {
		t.Errorf("error %v", err)
	}
	if got := commands(w.calls()); got != "ADD DEL" || len(w.attachments()) != 0 {
		t.Errorf("calls %q, attachments %v: want ADD DEL and none", got, w.attachments())
	}

	w.configure("10.conflist", "net", `, "noAddress": true`)
	if _, err = n.Setup(t.Context(), p); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("no address: %v", err)
	}
	if got := commands(w.calls()); got != "ADD DEL" {
		t.Errorf("calls %q, want ADD DEL", got)
	}

	// The undo fails as well: what is left is known, and removed later.
	w.configure("10.conflist", "net", `, "fail": ["ADD", "DEL"]`)
	_, err = n.Setup(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "told to fail ADD") || !strings.Contains(err.Error(), "told to fail DEL") {
		t.Errorf("error %v, want both", err)
	}
	if err := n.Teardown(t.Context(), p, Result{}); err == nil {
		t.Error("teardown with a failing DEL: no error")
	}
	if len(w.attachments()) != 1 {
		t.Errorf("attachments %v, want one", w.attachments())
	}
	record := w.record(p.ID)
	must(t, os.WriteFile(record, []byte(strings.Replace(w.read(record), `"ADD","DEL"`, `"ADD"`, 1)), 0o600)) // the plugin works again
	must(t, n.Teardown(t.Context(), p, Result{}))

	// A context that has ended does not keep the undo from running.
	w.configure("10.conflist", "net", "")
	w.calls()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Setup(ctx, p); err == nil {
		t.Error("no error with an ended context")
	}
	if got := commands(w.calls()); got != "DEL" {
		t.Errorf("calls %q, want DEL", got)
	}
	for name, change := range map[string]func(*Pod){
		"bandwidth": func(p *Pod) { p.Annotations = map[string]string{egressBandwidth: "fast"} },
		"low":       func(p *Pod) { p.Annotations = map[string]string{egressBandwidth: "1"} },
		"name":      func(p *Pod) { p.Name = "a;K8S_POD_UID=b" },
		"port":      func(p *Pod) { p.Ports = []PortMapping{{HostPort: 1, ContainerPort: 1, Protocol: "x"}} },
	} {
		bad := p
		change(&bad)
		if _, err := n.Setup(t.Context(), bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	if got := commands(w.calls()); got != "" {
		t.Errorf("calls %q, want none", got)
	}
}

func (w *cniWorld) record(id string) string {
	return filepath.Join(w.o.StateDir, "cni", id+".json")
}

func (w *cniWorld) read(path string) string {
	w.Helper()
	data, err := os.ReadFile(path)
	must(w, err)
	return string(data)
}

func TestCNITeardownWithoutNamespace(t *testing.T) {
	w := newCNIWorld(t)
	w.configure("10.conflist", "net", "")
	n := w.start()
	p := w.pod(w.o, nil)
	r := w.setup(n, p)
	w.calls()
	must(t, netns.UnpinNamespaces(filepath.Dir(p.NetNS)))
	must(t, os.RemoveAll(w.o.CacheDir)) // as if it had been on a tmpfs, and the machine restarted
	must(t, n.Teardown(t.Context(), p, r))
	if calls := w.calls(); len(calls) != 1 || calls[0].Command != "DEL" || calls[0].NetNS != "" || calls[0].ID != p.ID {
		t.Errorf("calls %+v, want DEL without a namespace", calls)
	}
	must(t, n.Teardown(t.Context(), Pod{ID: p.ID}, Result{})) // nobody knows the pod any more
	if calls := w.calls(); len(calls) != 0 {
		t.Errorf("calls %+v, want none", calls)
	}
}

// A pod that a wrong configuration has not connected is removed once the configuration is right,
// and one that was connected by plugins which were removed once there is another network.
func TestCNITeardownAfterChange(t *testing.T) {
	w := newCNIWorld(t)
	n := w.start()
	bin := w.o.BinDirs[len(w.o.BinDirs)-1]
	w.configure("10.conflist", "net", `, "fail": ["ADD", "DEL"]`)
	wrong := w.pod(w.o, nil)
	if _, err := n.Setup(t.Context(), wrong); err == nil {
		t.Error("no error of a plugin that fails")
	}
	if err := n.Teardown(t.Context(), wrong, Result{}); err == nil {
		t.Error("no error while the configuration is wrong")
	}
	w.configure("10.conflist", "net", "")
	must(t, n.Teardown(t.Context(), wrong, Result{}))

	must(t, os.Symlink("tiny", filepath.Join(bin, "gone")))
	w.configure("10.conflist", "net", "")
	file := filepath.Join(w.o.ConfDir, "10.conflist")
	must(t, os.WriteFile(file, []byte(strings.Replace(w.read(file), `"type": "tiny"`, `"type": "gone"`, 1)), 0o600))
	p := w.pod(w.o, nil)
	r, err := n.Setup(t.Context(), p)
	must(t, err)
	must(t, os.Remove(filepath.Join(bin, "gone")))
	if err := n.Teardown(t.Context(), p, r); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("teardown without a plugin: %v", err)
	}
	w.configure("10.conflist", "other", `, "fail": ["DEL"]`)
	if err := n.Teardown(t.Context(), p, r); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("teardown by a network that fails: %v", err)
	}
	w.configure("10.conflist", "other", "")
	must(t, n.Teardown(t.Context(), p, r))
	if _, err := os.Stat(w.record(p.ID)); !os.IsNotExist(err) {
		t.Errorf("the pod is on record: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(w.o.CacheDir, "results"))) // of the first network, as its plugins left it

	// What works again is not given up for another network.
	w.configure("10.conflist", "net", `, "fail": ["DEL"]`)
	p = w.pod(w.o, nil)
	r, err = n.Setup(t.Context(), p)
	must(t, err)
	w.configure("10.conflist", "other", "")
	if err := n.Teardown(t.Context(), p, r); err == nil || !strings.Contains(err.Error(), "told to fail DEL") {
		t.Errorf("teardown of a connected pod whose plugin fails: %v", err)
	}
	must(t, n.Teardown(t.Context(), p, Result{}))
	must(t, os.RemoveAll(filepath.Join(w.o.CacheDir, "results")))
}

// A pod whose plugins were removed stays until they are back, or a program that does nothing is.
func TestCNITeardownWithoutPlugins(t *testing.T) {
	w := newCNIWorld(t)
	w.configure("10.conflist", "net", "")
	n := w.start()
	p := w.pod(w.o, nil)
	r := w.setup(n, p)
	bin := w.o.BinDirs[len(w.o.BinDirs)-1]
	plugins, err := os.ReadDir(bin)
	must(t, err)
	for _, plugin := range plugins {
		must(t, os.Remove(filepath.Join(bin, plugin.Name())))
	}
	for range 2 {
		if err := n.Teardown(t.Context(), p, r); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), bin) || !strings.Contains(err.Error(), "install it again") {
			t.Errorf("teardown without plugins: %v", err)
		}
	}
	for _, plugin := range plugins {
		must(t, os.Symlink("/bin/true", filepath.Join(bin, plugin.Name())))
	}
	must(t, n.Teardown(t.Context(), p, r))
	if _, err := os.Stat(w.record(p.ID)); !os.IsNotExist(err) {
		t.Errorf("the pod is on record: %v", err)
	}
	left := w.attachments()
	if len(left) != 1 {
		t.Errorf("attachments %v, want the one that was given up", left)
	}
	for _, file := range left {
		must(t, os.Remove(file))
	}
}

func TestConfigurationComesAndGoes(t *testing.T) {
	w := newCNIWorld(t)
	must(t, os.Remove(w.o.ConfDir))
	n := w.start()
	must(t, n.Status(t.Context()))
	old := w.pod(w.o, nil)
	r := w.setup(n, old)
	serve(t, old.NetNS, 80, "old")
	w.wantAnswer("", "tcp", join(r.IPs[0], 80), "old")

	must(t, os.MkdirAll(w.o.ConfDir, 0o700))
	w.configure("10.conflist", "net", "")
	must(t, n.Status(t.Context()))
	young := w.pod(w.o, nil)
	ry := w.setup(n, young)
	if ry.IPs[0].String() != "10.77.0.2" {
		t.Errorf("address %v, want one of the plugin", ry.IPs[0])
	}
	w.wantAnswer("", "tcp", join(r.IPs[0], 80), "old")
	must(t, n.Teardown(t.Context(), old, r)) // by the embedded network
	if got := commands(w.calls()); got != "STATUS ADD" {
		t.Errorf("calls %q, want STATUS ADD", got)
	}
	if left := n.(*switching).embedded.book.All(); len(left) != 0 {
		t.Errorf("leases %v are left", left)
	}

	broken := filepath.Join(w.o.ConfDir, "05-broken.conflist")
	for name, content := range map[string]string{
		"empty": "", "no JSON": "{", "no plugins": `{"name": "x", "plugins": []}`, "no name": `{"plugins": [{"type": "tiny"}]}`,
		"a name that leads elsewhere": `{"name": "../x", "plugins": [{"type": "tiny"}]}`,
	} {
		must(t, os.WriteFile(broken, []byte(content), 0o600))
		if err := n.Status(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), broken) {
			t.Errorf("%s: status %v, want Unavailable with the file's name", name, err)
		}
		if _, err := n.Setup(t.Context(), old); !errdefs.IsUnavailable(err) {
			t.Errorf("%s: setup %v, want Unavailable", name, err)
		}
	}
	must(t, os.WriteFile(broken, []byte(`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "absent"}]}`), 0o600))
	if err := n.Status(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), `"absent"`) {
		t.Errorf("a plugin that is not there: %v", err)
	}
	must(t, os.Remove(broken))
	w.configure("10.conflist", "net", `, "fail": ["STATUS"]`)
	if err := n.Status(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "told to fail STATUS") {
		t.Errorf("a plugin that is not ready: %v", err)
	}
}

// Configurations of other shapes: one plugin's, and a list whose plugins lie in files beside it.
func TestConfigurationShapes(t *testing.T) {
	w := newCNIWorld(t)
	n := w.start()
	write := func(name, content string) {
		path := filepath.Join(w.o.ConfDir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	plugin := fmt.Sprintf(`"type": "tiny", "dir": %q`, w.plugins)
	shapes := map[string]func(){
		"single": func() { write("10.conf", `{"cniVersion": "0.4.0", "name": "single", `+plugin+`}`) },
		"beside": func() {
			write("10.conflist", `{"cniVersion": "1.1.0", "name": "beside"}`)
			write("beside/10-tiny.conf", `{`+plugin+`}`)
		},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			shape()
			p := w.pod(w.o, nil)
			r, err := n.Setup(t.Context(), p)
			must(t, err)
			must(t, os.RemoveAll(w.o.ConfDir))
			must(t, n.Teardown(t.Context(), p, r))
			calls := w.calls()
			if len(calls) != 2 || calls[0].Network != name || calls[1].Network != name || calls[1].Command != "DEL" {
				t.Errorf("calls %+v", calls)
			}
		})
	}
}

func TestCNIGC(t *testing.T) {
	w := newCNIWorld(t)
	w.configure("10.conflist", "net", "")
	n := w.start()
	alive, dead, elsewhere := w.pod(w.o, nil), w.pod(w.o, nil), w.pod(w.o, nil)
	w.setup(n, alive)
	w.setup(n, dead)
	w.configure("10.conflist", "other", "")
	w.setup(n, elsewhere)
	w.configure("10.conflist", "net", "")
	must(t, n.Close())
	w.calls()

	// An attachment nobody knows, and one of another runtime that shares the cache.
	stray := filepath.Join(w.plugins, "at-stray-eth0")
	foreign := filepath.Join(w.plugins, "at-foreign-net1")
	for _, path := range []string{stray, foreign} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	cached := filepath.Join(w.o.CacheDir, "results", "net-foreign-net1")
	must(t, os.WriteFile(cached, []byte(`{"kind": "cniCacheV1", "containerId": "foreign", "networkName": "net", "ifName": "net1"}`), 0o600))

	again, err := start(w.o)
	must(t, err)
	w.Cleanup(func() { must(t, errors.Join(again.Close(), Destroy(w.o))) })
	must(t, again.GC(t.Context(), []string{alive.ID}))
	want := []string{filepath.Join(w.plugins, "at-"+alive.ID+"-eth0"), foreign}
	slices.Sort(want)
	if got := w.attachments(); !slices.Equal(got, want) {
		t.Errorf("attachments %v, want those of the living pod and of the other runtime", got)
	}
	deleted := map[string]string{}
	for _, c := range w.calls() {
		if c.Command == "DEL" {
			deleted[c.ID] = c.Network
		}
	}
	if !reflect.DeepEqual(deleted, map[string]string{dead.ID: "net", elsewhere.ID: "other"}) {
		t.Errorf("deleted %v", deleted)
	}
	must(t, os.Remove(cached))
	must(t, again.GC(t.Context(), nil))
}

func TestBandwidth(t *testing.T) {
	for in, want := range map[string]int64{"1k": 1000, "10M": 10_000_000, "1Gi": 1 << 30, "1P": 1e15, "1500": 1500, "999": 0, "2P": 0, "": 0, "-1M": 0, "ten": 0} {
		if got, err := bandwidth(in); got != want || (want == 0) != errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
}
