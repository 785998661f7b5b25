package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
	"github.com/sunaba-project/sunaba/tests/registry"
)

// prepare makes what the faults need: images behind a registry that fails at times, a guest that
// answers connections, and a file of lines for guests.
func (f *faults) prepare() {
	var err error
	f.proxy, err = registry.NewProxy("http://" + world.registry.Host)
	f.check(err)
	served := httptest.NewServer(f.proxy)
	f.t.Cleanup(served.Close)
	for _, name := range []string{"soak-one", "soak-two"} {
		image, err := oci.Busybox(oci.Host(), v1.Config{}, oci.Text("name", name))
		ref := f.push(name+":1", image, err)
		f.images = append(f.images, strings.Replace(ref, world.registry.Host, strings.TrimPrefix(served.URL, "http://"), 1))
	}
	guest, err := oci.PackedC(f.t.Context(), "../criwasm/testdata/guest.c")
	f.server = f.push("server:1", guest, err)
	for _, ref := range append(f.images, f.server, world.busybox, world.guest) {
		f.pull(ref)
	}
	var lines strings.Builder
	for i := range flooded {
		fmt.Fprintf(&lines, "%d\n", i+1)
	}
	f.lines = filepath.Join(world.folder, "lines")
	f.check(os.WriteFile(f.lines, []byte(lines.String()), 0o644))
}

const (
	counted = 300   // lines that a counting container writes
	flooded = 50000 // lines of one that writes as quickly as it can
)

// writes is a kind of container whose end tells whether it wrote all of its lines.
type writes struct {
	name  string // its first letters
	code  int32  // with which it ends then
	lines int
	text  string // before the number of a line
}

var writers = []writes{{"counting-", 7, counted, "line "}, {"flood-", 7, flooded, ""}, {"guestflood-", 0, flooded, ""}}

func writerOf(name string) (writes, bool) {
	i := slices.IndexFunc(writers, func(w writes) bool { return strings.HasPrefix(name, w.name) })
	if i < 0 {
		return writes{}, false
	}
	return writers[i], true
}

// writing is a container that writes lines: a few, or rarely very many.
func (s *storm) writing(handler string, many bool) *runtime.ContainerConfig {
	script, kind := fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line $i; done; exit 7", counted), "counting-"
	if many {
		script, kind = fmt.Sprintf("seq %d && exit 7; exit 137", flooded), "flood-"
	}
	config := sh(script)
	if many && strings.HasPrefix(handler, "wasm") {
		config, kind = of(world.guest), "guestflood-"
		config.Args = []string{"cat", "/lines"}
		config.Mounts = []*runtime.Mount{{ContainerPath: "/lines", HostPath: s.lines, Readonly: true}}
	}
	config.Metadata.Name = kind + config.Metadata.Name
	return config
}

// readLines wants all lines of a container that has written all, in their order.
func (f *faults) readLines(s *runtime.ContainerStatus, w writes) {
	data, err := os.ReadFile(s.GetLogPath())
	f.check(err)
	next, strange := 1, ""
	for line := range strings.Lines(string(data)) {
		if _, text, _ := strings.Cut(line, " stdout F "); text == fmt.Sprintf("%s%d\n", w.text, next) {
			next++
		} else if strange == "" {
			strange = line
		}
	}
	f.complete[strings.TrimSuffix(w.name, "-")]++
	if got := strings.Count(string(data), "\n"); next != w.lines+1 || got != w.lines {
		f.t.Errorf("log of %s has %d lines of %d, and line %d is missing or not in its place; the first other one is %q", s.GetMetadata().GetName(), got, w.lines, next, strange)
	}
}

// fault does something to the node. All kinds have their turn, also in a short run.
func (f *faults) fault() {
	if len(f.deck) == 0 {
		kinds := []func(){f.fullDisk, f.readOnly, f.badRegistry, f.manyConnections, f.littleMemory, f.manyProcesses, f.checkpoint}
		f.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, kind := range kinds {
			f.deck = append(f.deck, kind, f.kill)
		}
		f.deck = append(f.deck, f.kill, f.kill, f.kill, f.kill, f.kill)
	}
	next := f.deck[0]
	f.deck = f.deck[1:]
	next()
}

// aWhile is up to three seconds.
func (f *faults) aWhile() { time.Sleep(time.Duration(f.random.IntN(3000)) * time.Millisecond) }

// fullDisk takes all space of the disk for a while.
func (f *faults) fullDisk() {
	take, what := disk.TakeBytes, "no space"
	if f.random.IntN(2) == 0 {
		take, what = disk.TakeInodes, "no inodes"
	}
	since := time.Now()
	free := take(f.t, f.disk)
	f.aWhile()
	free()
	f.full = append(f.full, [2]int64{since.UnixNano(), time.Now().UnixNano()})
	f.count[what]++
}

// readOnly makes the root of the node read-only for a while. Then all works again.
func (f *faults) readOnly() {
	writable := disk.Cover(f.t, f.Root)
	f.aWhile()
	writable()
	f.count["read-only"]++
	f.visit(f.handlers[f.random.IntN(len(f.handlers))], func(p *pod) {
		if s := p.start(sh("exit 5")).wait(); s.GetExitCode() != 5 {
			f.t.Errorf("after the root was read-only, a container ends with %d, %s: %s", s.GetExitCode(), s.GetReason(), s.GetMessage())
		}
	})
}

// badRegistry has a registry fail for a while in one of its ways. Then a pull succeeds.
func (f *faults) badRegistry() {
	kinds := []struct {
		name string
		do   registry.Action
	}{
		{"500", registry.Status(500, "")}, {"503", registry.Status(503, "1")}, {"429", registry.Status(429, "1")},
		{"cut", registry.Cut(100_000)}, {"stall", registry.Stall(100_000)}, {"wrong bytes", registry.Corrupt(1000)},
		{"wrong length", registry.Length(-10)}, {"slow", registry.Slow(64<<10, 50*time.Millisecond)},
	}
	kind := kinds[f.registryFaults%len(kinds)]
	f.registryFaults++
	ref := f.images[f.random.IntN(len(f.images))]
	_, err := f.RemoveImage(f.within(node.Patience), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: ref}})
	f.check(err)
	f.proxy.Set(registry.Fault{Path: "/blobs/", Do: kind.do})
	impatient, cancel := context.WithTimeout(f.t.Context(), time.Duration(f.random.IntN(3000))*time.Millisecond)
	defer cancel()
	err = f.tryPull(impatient, ref)
	f.proxy.Set()
	f.count["registry: "+kind.name]++
	if err == nil && kind.name != "slow" {
		// Another client may have pulled it before the fault.
		f.count["registry: pulled all the same"]++
	}
	if err := f.tryPull(f.within(node.Patience), ref); err != nil {
		f.t.Errorf("a pull after the registry's fault %q: %v", kind.name, err)
	}
}

// imagesAreSound wants no damage to images, and that all can be pulled.
func (f *faults) imagesAreSound() {
	for _, ref := range f.images {
		f.pull(ref)
	}
	check := exec.Command(filepath.Join(world.bin, "sunaba"), "images", "check", "--root", f.Root, "--state", f.State, "--config", f.ConfigFile)
	if out, err := check.CombinedOutput(); err != nil {
		f.t.Errorf("images check: %v\n%s", err, out)
	}
}

const (
	connections = 300
	port        = 8080
)

// manyConnections opens connections to a server at once, half of which nobody reads from. Each
// other one is answered, and one that comes later.
func (f *faults) manyConnections() {
	handler := f.handlers[f.random.IntN(len(f.handlers))]
	f.visit(handler, func(p *pod) {
		config := sh(fmt.Sprintf("cd /etc && exec httpd -f -p %d", port))
		if strings.HasPrefix(handler, "wasm") {
			config = of(f.server)
			config.Args = []string{"serve"}
			config.Annotations = map[string]string{"io.kubernetes.container.ports": fmt.Sprintf(`[{"containerPort":%d,"protocol":"TCP"}]`, port)}
		}
		p.start(config)
		answer, err := p.PodSandboxStatus(p.within(node.Patience), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id})
		f.check(err)
		address := net.JoinHostPort(answer.GetStatus().GetNetwork().GetIp(), fmt.Sprint(port))
		if !node.Within(node.Patience, func() bool { return get(address, true, node.Patience) == nil }) {
			f.t.Errorf("a server under %s does not answer", handler)
			return
		}
		guest := strings.HasPrefix(handler, "wasm")
		patience := node.Patience
		if !guest {
			patience /= 4
		}
		var all sync.WaitGroup
		errs := make([]error, connections)
		for i := range connections {
			all.Go(func() {
				// busybox's httpd queues nine connections: Linux drops what is sent beyond, on a bare
				// machine too.
				node.Within(node.Patience, func() bool {
					errs[i] = get(address, i%2 == 0, patience)
					return errs[i] == nil || guest
				})
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			f.t.Errorf("under %s, of %d connections failed: %v", handler, connections, err)
		}
		if err := get(address, true, node.Patience); err != nil {
			f.t.Errorf("under %s, a connection after %d others: %v", handler, connections, err)
		}
		f.count["connections"] += connections
	})
}

// get asks a server for a page, and reads the answer if it is wanted, all within patience.
func get(address string, wanted bool, patience time.Duration) error {
	c, err := net.DialTimeout("tcp", address, node.Slow(patience))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(node.Slow(patience))); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET /group HTTP/1.0\r\n\r\n"); err != nil || !wanted {
		return err
	}
	line := make([]byte, len("HTTP/1.0 200"))
	if _, err := io.ReadFull(c, line); err != nil {
		return err
	}
	if !strings.HasPrefix(string(line), "HTTP/1.") || !strings.HasSuffix(string(line), " 200") {
		return fmt.Errorf("answer %q", line)
	}
	_, err = io.Copy(io.Discard, c)
	return err
}

// littleMemory has a container take more memory than it may, and one fill it with pages that the
// kernel can take back.
func (f *faults) littleMemory() {
	handler := f.handlers[f.random.IntN(len(f.handlers))]
	limit := func(config *runtime.ContainerConfig) *runtime.ContainerConfig {
		config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
		return config
	}
	f.visit(handler, func(p *pod) {
		greedy, code, reason := limit(sh("x=0123456789abcdef; while :; do x=$x$x; done")), int32(137), "OOMKilled"
		if strings.HasPrefix(handler, "wasm") {
			greedy, code, reason = limit(of(world.guest)), 3, "Error"
			greedy.Args = []string{"fill", "200"}
		}
		c := p.start(greedy)
		full := p.start(limit(sh("dd if=/dev/zero of=/tmp/file bs=1M count=96 && rm /tmp/file")))
		if s := c.wait(); s.GetExitCode() != code || s.GetReason() != reason {
			f.t.Errorf("a container under %s that takes too much memory ends with %d, %s: %s", handler, s.GetExitCode(), s.GetReason(), s.GetMessage())
		}
		if s := full.wait(); s.GetExitCode() != 0 {
			f.t.Errorf("a container under %s that writes a file ends with %d, %s: %s", handler, s.GetExitCode(), s.GetReason(), full.text())
		}
		f.count["out of memory: "+reason]++
	})
}

// most is how many processes and threads a flooded pod may have.
const most = 300

// manyProcesses has a container start processes without bound, in a pod that may have a number of
// them, as kubelets limit it. Guests have no way to start any. Another pod runs meanwhile, and the
// container is stopped in time.
func (f *faults) manyProcesses() {
	handler := f.handlers[f.random.IntN(len(f.handlers))]
	f.visit(handler, func(p *pod) {
		group, err := cgroup.Open(node.PodCgroup(p.id))
		f.check(err)
		f.check(os.WriteFile(group.File("pids", "pids.max"), []byte(strconv.Itoa(most)), 0o600))
		c := p.start(sh(`exec awk 'BEGIN { while (1) system("sleep 1000 &") }' 2>/dev/null`))
		if !node.Within(node.Patience, func() bool {
			now, err := os.ReadFile(group.File("pids", "pids.current"))
			f.check(err)
			n, err := strconv.Atoi(strings.TrimSpace(string(now)))
			return err == nil && n > most*9/10
		}) {
			f.t.Errorf("a flood of processes under %s has few: %v", handler, c.text())
		}
		f.visit(f.handlers[f.random.IntN(len(f.handlers))], func(p *pod) {
			if s := p.start(sh("exit 5")).wait(); s.GetExitCode() != 5 {
				f.t.Errorf("beside a flood of processes, a container ends with %d, %s: %s", s.GetExitCode(), s.GetReason(), s.GetMessage())
			}
		})
		_, err = f.StopContainer(f.within(node.Patience), &runtime.StopContainerRequest{ContainerId: c.id, Timeout: 1})
		f.check(err)
		// A shim of the pod's own is within its limit, and ends where it gets no more threads.
		if s := c.wait(); s.GetExitCode() != 137 && !(s.GetExitCode() == 255 && strings.HasSuffix(handler, "-own")) {
			f.t.Errorf("a flood of processes under %s ends with %d, %s: %s", handler, s.GetExitCode(), s.GetReason(), s.GetMessage())
		}
		f.count["flood of processes"]++
	})
}

// visit runs a pod that the clients do not know, and removes it.
func (f *faults) visit(handler string, use func(p *pod)) {
	p := f.run(handler)
	use(p)
	p.remove()
}
