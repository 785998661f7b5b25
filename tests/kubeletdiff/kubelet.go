package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// kubeletConfig is the kubelet's configuration: the driver of cgroups comes from the server,
// nothing is evicted, and its list of pods is read without authentication on loopback.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
imageServiceEndpoint: unix://%[1]s
staticPodPath: %[2]s
address: 127.0.0.1
port: %[3]d
readOnlyPort: %[4]d
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
clusterDNS: [%[5]s]
clusterDomain: %[6]s
fileCheckFrequency: 1s
failSwapOn: false
failCgroupV1: false
oomScoreAdj: %[7]d
makeIPTablesUtilChains: false
localStorageCapacityIsolation: true
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
crashLoopBackOff: {maxContainerRestartPeriod: %[8]s}
featureGates: {KubeletCrashLoopBackOffMax: true}
logging: {format: json, verbosity: 3}
`

// kubelet is the kubelet's process.
type kubelet struct {
	program, config, root, log string
	cmd                        *exec.Cmd
	ended                      chan error
}

// startKubelet starts a server and a standalone kubelet over it.
func startKubelet(ctx context.Context, g *ground) (*side, error) {
	s, err := newSide(ctx, g, "kubelet", "")
	if err != nil {
		return nil, err
	}
	s.suffix = "-" + nodeName
	k := &kubelet{program: g.kubelet, config: filepath.Join(s.dir, "kubelet.yaml"), root: filepath.Join(s.dir, "kubelet"), log: filepath.Join(s.dir, "kubelet.log")}
	s.end = func(report string) error {
		stopped := k.stop(syscall.SIGTERM)
		data, err := os.ReadFile(k.log)
		return errors.Join(stopped, k.unmount(), err, os.WriteFile(filepath.Join(report, "kubelet.log"), data, 0o644))
	}
	port, err := k.configure(s)
	if err == nil {
		err = k.start()
	}
	if err != nil {
		return nil, errors.Join(err, s.close(ctx, g.report))
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/pods", port)
	s.pods = func(ctx context.Context) ([]corev1.Pod, error) { return podsOver(ctx, url) }
	s.events = func(context.Context) ([]event, error) { return readEvents(k.log) }
	if err := k.await(ctx, s); err != nil {
		return nil, errors.Join(err, s.close(ctx, g.report))
	}
	return s, nil
}

// configure writes the configuration and returns the port of the list of pods.
func (k *kubelet) configure(s *side) (int, error) {
	port, err := node.FreePort()
	if err != nil {
		return 0, err
	}
	readOnly, err := node.FreePort()
	if err != nil {
		return 0, err
	}
	// A lower value than that of this process needs CAP_SYS_RESOURCE, which it may lack.
	var score int
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err == nil {
		_, err = fmt.Sscan(string(data), &score)
	}
	if err != nil {
		return 0, err
	}
	text := fmt.Sprintf(kubeletConfig, s.node.Socket, s.manifests, port, readOnly, clusterDNS, domain, score, crashLoopMax)
	return readOnly, os.WriteFile(k.config, []byte(text), 0o600)
}

func (k *kubelet) start() error {
	log, err := os.OpenFile(k.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	k.cmd = exec.Command(k.program, "--config="+k.config, "--root-dir="+k.root, "--cert-dir="+filepath.Join(k.root, "pki"),
		"--hostname-override="+nodeName, "--node-ip="+nodeIP)
	k.cmd.Stdout, k.cmd.Stderr = log, log
	if err := k.cmd.Start(); err != nil {
		return fmt.Errorf("start the kubelet (make builds it): %w", err)
	}
	k.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(k.cmd, k.ended)
	return nil
}

func (k *kubelet) stop(signal syscall.Signal) error {
	if k.cmd == nil || k.cmd.Process == nil {
		return nil
	}
	if err := k.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-k.ended:
		return nil
	case <-time.After(node.Patience):
		return fmt.Errorf("the kubelet did not end within %v of %v", node.Patience, signal)
	}
}

// unmount takes away the mount of its own folder on itself, which a kubelet leaves.
func (k *kubelet) unmount() error {
	if err := unix.Unmount(k.root, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", k.root, err)
	}
	return nil
}

// kubepods are the cgroups that a kubelet makes for all pods, and leaves, in every hierarchy.
func kubepods() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods"} {
		dirs, _ := filepath.Glob(pattern) // the pattern is well formed
		found = append(found, dirs...)
	}
	return found
}

// removeKubepods removes these cgroups with those below them. One that has processes stays.
func removeKubepods() {
	for _, dir := range kubepods() {
		for _, pattern := range []string{"*/*", "*", ""} {
			below, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, d := range below {
				_ = unix.Rmdir(d) // files cannot be removed, and need not be
			}
		}
	}
}

// await waits until the kubelet lists pods.
func (k *kubelet) await(ctx context.Context, s *side) error {
	var err error
	if node.Within(node.Patience, func() bool {
		_, err = s.pods(ctx)
		return err == nil
	}) {
		return nil
	}
	data, _ := os.ReadFile(k.log)
	return fmt.Errorf("the kubelet does not list pods: %w\n%s", err, data[max(0, len(data)-4000):])
}

// readEvents reads the events of a kubelet without an API server, which are in its log alone.
func readEvents(path string) ([]event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	var list []event
	for lines.Scan() {
		if !strings.Contains(lines.Text(), `"Event occurred"`) {
			continue
		}
		var line struct {
			Object                           struct{ Name, Namespace string }
			FieldPath, Type, Reason, Message string
			Kind                             string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("read the kubelet's log: %w", err)
		}
		list = append(list, event{line.Object.Namespace, line.Object.Name, line.FieldPath, line.Type, line.Reason, line.Message})
	}
	return list, lines.Err()
}
