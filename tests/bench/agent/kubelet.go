package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/kubelet"
	"github.com/sunaba-project/sunaba/tests/measure"
)

const (
	kubeletNode = "till"
	kubeletIP   = "192.0.2.10"
	// guestsFirst has pods that name no class run as guests: a kubelet without an API server can look
	// up no class.
	guestsFirst = "[handlers.runc]\ntype = \"oci\"\ndefault = false\n[handlers.wasm]\ntype = \"wasm\"\ndefault = true\n"
)

// manager is who runs the pods of the folder of manifests, over a server.
type manager struct {
	*machine
	pid   int                                         // of a process of its own, 0 without
	ready func(context.Context) ([]corev1.Pod, error) // lists pods
	log   string                                      // pattern of the log of a pod, with %s for its name
}

// managed is what one manager costs; the first of each pair is the server's, the second that of its
// own process.
type managed struct {
	empty, full [2]float64 // PSS in MiB
	spent       [2]time.Duration
	first       []float64 // file to first line, in ms
	all         time.Duration
}

// besideKubelet measures the agent and a standalone kubelet, each over a server of its own.
func (b *bench) besideKubelet(ctx context.Context) error {
	if err := errors.Join(kubelet.Uplink(kubeletIP), kubelet.Hide("/var/log", "/var/lib/kubelet")); err != nil {
		return err
	}
	if len(kubelet.Cgroups()) == 0 { // no other kubelet has them
		defer kubelet.RemoveCgroups()
	}
	var agent, other managed
	err := b.with(ctx, setup{agent: true, more: guestsFirst}, func(m *machine) (err error) {
		pattern := filepath.Join(m.Options.Dir, "pod-logs", "default_%s_*", "c", "0.log")
		agent, err = b.managed(&manager{m, 0, func(context.Context) ([]corev1.Pod, error) { return m.listed() }, pattern})
		return err
	})
	if err == nil {
		err = b.with(ctx, setup{more: guestsFirst}, func(m *machine) (err error) {
			k, err := kubelet.Start(ctx, kubelet.Options{
				Program: b.kubelet, Dir: m.Options.Dir, Socket: m.Socket, Manifests: m.folder(),
				NodeName: kubeletNode, NodeIP: kubeletIP, ClusterDNS: "198.51.100.53", Domain: "cluster.test", CrashLoopMax: "300s",
			})
			if err != nil {
				return err
			}
			other, err = b.managed(&manager{m, k.PID(), k.Pods, "/var/log/pods/default_%s-" + kubeletNode + "_*/c/0.log"})
			if err != nil {
				log, _ := os.ReadFile(k.Log)
				err = fmt.Errorf("%w\n%s", err, tail(string(log)))
			}
			return errors.Join(err, k.Stop())
		})
	}
	if err != nil {
		return err
	}
	b.compare(agent, other)
	return nil
}

// managed measures one manager.
func (b *bench) managed(m *manager) (u managed, err error) {
	shape := idle("")
	if u.empty, err = m.memory(); err != nil {
		return u, err
	}
	for i := range max(b.rounds/3, 1) {
		name := fmt.Sprintf("one-%d", i)
		begun, err := m.put(map[string]string{name: m.manifest(name, shape)})
		if err != nil {
			return u, err
		}
		first, err := m.firstLine(fmt.Sprintf(m.log, name))
		if err != nil {
			return u, err
		}
		u.first = append(u.first, ms(first.Sub(begun)))
		if err := m.empty(name); err != nil {
			return u, err
		}
	}
	shape = serving("{httpGet: {port: 8080}, periodSeconds: 10}")
	shape.handler = ""
	files := map[string]string{}
	for i := range b.pods {
		name := fmt.Sprintf("p%03d", i)
		files[name] = m.manifest(name, shape)
	}
	begun, err := m.put(files)
	if err != nil {
		return u, err
	}
	if err := m.untilReady(files); err != nil {
		return u, err
	}
	u.all = time.Since(begun)
	if u.full, err = m.memory(); err != nil {
		return u, err
	}
	before, err := m.times()
	if err != nil {
		return u, err
	}
	if err := measure.Wait(m.ctx, b.watch); err != nil {
		return u, err
	}
	after, err := m.times()
	u.spent = [2]time.Duration{after[0] - before[0], after[1] - before[1]}
	return u, err
}

// empty removes a file and waits until no container runs.
func (m *manager) empty(name string) error {
	if err := os.Remove(filepath.Join(m.folder(), name+".yaml")); err != nil {
		return err
	}
	running := &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	return m.until("containers have ended", 100*time.Millisecond, func() (bool, error) {
		list, err := m.ListContainers(m.ctx, &cri.ListContainersRequest{Filter: running})
		return len(list.GetContainers()) == 0, err
	})
}

// untilReady waits until as many pods are ready as there are files. It asks seldom, since answers
// cost time.
func (m *manager) untilReady(files map[string]string) error {
	return m.until("all pods are ready", 500*time.Millisecond, func() (bool, error) {
		pods, err := m.ready(m.ctx)
		n := 0
		for i := range pods {
			if isReady(&pods[i]) {
				n++
			}
		}
		return n == len(files), err
	})
}

// memory is the PSS of the server and of the manager, in MiB, when they have been at rest for a
// while.
func (m *manager) memory() (f [2]float64, err error) {
	if f[0], err = m.pss(); err != nil || m.pid == 0 {
		return f, err
	}
	bytes, err := measure.PSS(m.pid)
	f[1] = float64(bytes) / (1 << 20)
	return f, err
}

// times is the processor time of both.
func (m *manager) times() (t [2]time.Duration, err error) {
	if t[0], err = measure.CPUTime(m.DaemonPID()); err != nil || m.pid == 0 {
		return t, err
	}
	t[1], err = measure.CPUTime(m.pid)
	return t, err
}

// compare adds the lines of the table.
func (b *bench) compare(agent, other managed) {
	add := func(what, format string, ours, theirs float64) {
		b.table.Add(what+", the agent beside a kubelet", fmt.Sprintf(format, ours), fmt.Sprintf(format, theirs), fmt.Sprintf("%.2f", ours/theirs), "", false)
	}
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / b.watch.Seconds() }
	sum := func(f [2]float64) float64 { return f[0] + f[1] }
	add("PSS of server and manager, no pods, MiB", "%.1f", sum(agent.empty), sum(other.empty))
	add(fmt.Sprintf("PSS of server and manager, %d pods, MiB", b.pods), "%.1f", sum(agent.full), sum(other.full))
	add("  the server's part", "%.1f", agent.full[0], other.full[0])
	add(fmt.Sprintf("processor time of both, %d HTTP probes each 10 s, %%", b.pods), "%.2f", percent(agent.spent[0]+agent.spent[1]), percent(other.spent[0]+other.spent[1]))
	add("  the server's part", "%.2f", percent(agent.spent[0]), percent(other.spent[0]))
	a, o := measure.SpreadOf(agent.first), measure.SpreadOf(other.first)
	b.table.Add("file → first line, ms, the agent beside a kubelet", a.Text("%.0f"), o.Text("%.0f"), fmt.Sprintf("%.2f", a.Median/o.Median), "", false)
	add(fmt.Sprintf("%d files → all Ready, s", b.pods), "%.1f", agent.all.Seconds(), other.all.Seconds())
}
