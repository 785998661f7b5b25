package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/meminfo"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/suites"
)

// memoryConfig keeps a quarter of the machine's memory free.
const memoryConfig = `
[pods]
manifests = [%q]
logs = %q
crash_loop_max = "2s"
%s
[pods.eviction]
memory_available = "25%%"
transition = "3s"
nodefs_available = "0%%"
imagefs_available = "0%%"
[handlers.runc]
type = "oci"
binary = "runc"
default = true
`

// podServer is a server that runs the pods of manifests.
type podServer struct {
	*node.Node
	t              *testing.T
	busybox, guest string
}

// eat starts it with more keys of [pods].
func eat(t *testing.T, more string) *podServer {
	t.Helper()
	return serve(t, memoryConfig, more)
}

// serve starts a server of manifests. Its configuration is given the folders of these and of logs,
// and more.
func serve(t *testing.T, config, more string) *podServer {
	t.Helper()
	dir := t.TempDir()
	e := &podServer{t: t}
	bin := filepath.Join(dir, "bin")
	e.busybox, e.guest = build(t, bin)
	manifests := filepath.Join(dir, "manifests")
	check(t, os.Mkdir(manifests, 0o755))
	n, err := node.Start(t.Context(), node.Options{Bin: bin, Dir: dir, Config: fmt.Sprintf(config, manifests, filepath.Join(dir, "pod-logs"), more)})
	check(t, err)
	e.Node = n
	t.Cleanup(func() {
		files, _ := filepath.Glob(filepath.Join(manifests, "*"))
		for _, file := range files {
			check(t, os.Remove(file))
		}
		if !node.Within(node.Patience, func() bool { return len(e.pods()) == 0 }) {
			t.Errorf("pods do not end: %v\n%s", e.pods(), n.DaemonLog())
		}
		if forced, err := n.Close(); err != nil || len(forced) > 0 {
			t.Errorf("left over: %v, %v", forced, err)
		}
	})
	return e
}

// pod makes a pod, with fields of its spec before the container.
func (e *podServer) pod(name, spec, command string) {
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n%s\n"+
		"  containers: [{name: app, image: %q, command: [sh, -c, %q]}]\n", name, spec, e.busybox, command)
	check(e.t, os.WriteFile(filepath.Join(e.Options.Dir, "manifests", name+".yaml"), []byte(text), 0o600))
}

func (e *podServer) pods() map[string]corev1.Pod {
	out, err := try(filepath.Join(e.Options.Bin, "sunaba"), "get", "--state="+e.State, "pods", "-o", "json")
	var list struct{ Items []corev1.Pod }
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	if err != nil {
		fmt.Println(err)
	}
	all := map[string]corev1.Pod{}
	for _, p := range list.Items {
		all[p.Name] = p
	}
	return all
}

func (e *podServer) await(what string, f func() bool) {
	e.t.Helper()
	if !node.Within(node.Patience, f) {
		out, _ := try(filepath.Join(e.Options.Bin, "sunaba"), "describe", "--state="+e.State, "pods")
		e.t.Fatalf("never: %s\n%s\n%s", what, out, e.DaemonLog())
	}
}

// running waits until pods run.
func (e *podServer) running(names ...string) {
	e.t.Helper()
	e.await(fmt.Sprint(names, " run"), func() bool {
		all := e.pods()
		for _, name := range names {
			if s := all[name].Status.ContainerStatuses; len(s) == 0 || s[0].State.Running == nil {
				return false
			}
		}
		return true
	})
}

// memory are the sizes of /proc/meminfo, in bytes.
func memory(t *testing.T) map[string]int64 {
	t.Helper()
	sizes, err := meminfo.Read("/proc")
	check(t, err)
	return sizes
}

// rounds is how often memory is eaten: looks every 10 s alone are too late for two of them.
const rounds = 3

// A pod that takes all memory within seconds is evicted before the kernel kills it or another one:
// the kernel says when tasks wait for memory (EX4, EX6 to EX8).
func TestMemoryPressure(t *testing.T) {
	e := eat(t, "")
	e.pod("critical", "  priorityClassName: system-node-critical", "sleep 100000")
	e.pod("steady", "", "sleep 100000")
	e.running("critical", "steady")
	before := e.pods()
	// Memory is full of files, as on a machine that has run for a while: who takes more must wait.
	files := t.TempDir()
	run(t, "mkfs.ext4", "-q", suites.Disk)
	run(t, "mount", suites.Disk, files)
	defer run(t, "umount", files)
	big := filepath.Join(files, "big")
	run(t, "dd", "if=/dev/zero", "of="+big, "bs=1M", "count=1700")
	unix.Sync()
	for range rounds {
		run(t, "dd", "if="+big, "of=/dev/null", "bs=1M")
		fmt.Printf("free %d MiB of %d\n", memory(t)["MemFree"]>>20, memory(t)[meminfo.Total]>>20)
		began := time.Now()
		part := fmt.Sprint(memory(t)[meminfo.Total] / 2) // the kernel refuses to promise all of it at once
		e.pod("eater", "", "tail -c "+part+" /dev/zero & tail -c "+part+" /dev/zero & wait")
		var at corev1.Pod
		e.await("the eater ends", func() bool { at = e.pods()["eater"]; return ended(at) })
		fmt.Printf("ended after %v: %s %s\n", time.Since(began).Round(10*time.Millisecond), at.Status.Reason, at.Status.Message)
		if at.Status.Reason != "Evicted" || !strings.HasPrefix(at.Status.Message, "The node was low on resource: memory. Threshold quantity: ") {
			t.Errorf("the eater: %+v", at.Status)
		}
		check(t, os.Remove(filepath.Join(e.Options.Dir, "manifests", "eater.yaml")))
		e.await("the eater is gone", func() bool { return e.pods()["eater"].Name == "" })
		stalls, err := os.ReadFile("/proc/pressure/memory")
		check(t, err)
		fmt.Print(string(stalls))
		time.Sleep(4 * time.Second) // the condition of the node
	}
	for name, was := range before {
		is := e.pods()[name]
		if is.UID != was.UID || is.Status.Phase != corev1.PodRunning || is.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s is %+v", name, is.Status)
		}
	}
}

// ended says that a pod's container was killed, by whom ever.
func ended(p corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || len(p.Status.ContainerStatuses) > 0 && (p.Status.ContainerStatuses[0].RestartCount > 0 ||
		p.Status.ContainerStatuses[0].State.Terminated != nil)
}

// All pods together cannot use what is reserved: the kernel kills one of them, while the machine
// has memory (RE7).
func TestReservedMemory(t *testing.T) {
	total := memory(t)[meminfo.Total]
	e := eat(t, fmt.Sprintf("reserved_memory = \"%d\"", total-400<<20))
	e.pod("steady", "", "sleep 100000")
	e.running("steady")
	group := "/sys/fs/cgroup/sunaba"
	if data, err := os.ReadFile(filepath.Join(group, "memory.max")); err != nil || strings.TrimSpace(string(data)) != fmt.Sprint(400<<20) {
		t.Fatalf("the limit of all pods is %s, %v", data, err)
	}
	for _, name := range []string{"one", "two"} {
		e.pod(name, "", "tail -c 260000000 /dev/zero")
	}
	e.await("one of them is killed", func() bool {
		for _, name := range []string{"one", "two"} {
			for _, s := range e.pods()[name].Status.ContainerStatuses {
				for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
					if end != nil {
						if end.ExitCode != 137 {
							t.Fatalf("%s ended with %+v", name, end)
						}
						return true
					}
				}
			}
		}
		return false
	})
	if free := memory(t)[meminfo.Available]; free < total/2 {
		t.Errorf("the machine has %d bytes left of %d", free, total)
	}
	if s := e.pods()["steady"].Status.ContainerStatuses; s[0].RestartCount != 0 || s[0].State.Running == nil {
		t.Errorf("steady is %+v", s)
	}
}
