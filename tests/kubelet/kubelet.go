// Package kubelet runs a standalone kubelet, which has no API server, over a CRI server of a test.
package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// config is the configuration: the driver of cgroups comes from the server,
// nothing is evicted, and its list of pods is read without authentication on loopback.
const config = `apiVersion: kubelet.config.k8s.io/v1beta1
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

// Options are what a kubelet is started with.
type Options struct {
	// Program is the kubelet, Dir the folder for everything of it, which exists.
	Program, Dir string
	// Socket is that of the CRI server, Manifests the folder of static pods.
	Socket, Manifests string
	// NodeName also follows the names of static pods, after a dash. NodeIP is the address of Uplink.
	NodeName, NodeIP   string
	ClusterDNS, Domain string
	// CrashLoopMax is the longest pause before a restart, as a duration.
	CrashLoopMax string
}

// Kubelet is a kubelet's process.
type Kubelet struct {
	// Log is the file of its log.
	Log     string
	root    string
	url     string       // of its pods
	process *node.Server // nil if it was not started
}

// Start starts a kubelet and returns when it lists pods.
func Start(ctx context.Context, o Options) (*Kubelet, error) {
	k := &Kubelet{Log: filepath.Join(o.Dir, "kubelet.log"), root: filepath.Join(o.Dir, "kubelet")}
	file := filepath.Join(o.Dir, "kubelet.yaml")
	if err := k.configure(o, file); err != nil {
		return nil, err
	}
	if err := k.start(ctx, o, file); err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	return k, nil
}

// configure writes the configuration.
func (k *Kubelet) configure(o Options, file string) error {
	port, err := node.FreePort()
	if err != nil {
		return err
	}
	readOnly, err := node.FreePort()
	if err != nil {
		return err
	}
	k.url = fmt.Sprintf("http://127.0.0.1:%d/pods", readOnly)
	// A lower value than that of this process needs CAP_SYS_RESOURCE, which it may lack.
	var score int
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err == nil {
		_, err = fmt.Sscan(string(data), &score)
	}
	if err != nil {
		return err
	}
	text := fmt.Sprintf(config, o.Socket, o.Manifests, port, readOnly, o.ClusterDNS, o.Domain, score, o.CrashLoopMax)
	return os.WriteFile(file, []byte(text), 0o600)
}

func (k *Kubelet) start(ctx context.Context, o Options, file string) error {
	process, err := node.RunServer(exec.Command(o.Program, "--config="+file, "--root-dir="+k.root, "--cert-dir="+filepath.Join(k.root, "pki"),
		"--hostname-override="+o.NodeName, "--node-ip="+o.NodeIP), k.Log)
	if err != nil {
		return fmt.Errorf("%w (make tests/tools-kubelet/bin/kubelet builds it)", err)
	}
	k.process = process
	return process.Await(ctx, node.Patience, func(ctx context.Context) error {
		_, err := k.Pods(ctx)
		return err
	})
}

// PID is that of the process.
func (k *Kubelet) PID() int { return k.process.PID() }

// Stop ends the process, and the mount of its own folder on itself, which a kubelet leaves.
func (k *Kubelet) Stop() (err error) {
	if k.process != nil {
		_, err = k.process.Signal(syscall.SIGTERM)
	}
	return errors.Join(err, k.unmount())
}

func (k *Kubelet) unmount() error {
	if err := unix.Unmount(k.root, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", k.root, err)
	}
	return nil
}

// Pods are the pods that the kubelet lists.
func (k *Kubelet) Pods(ctx context.Context) ([]corev1.Pod, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", k.url, answer.Status)
	}
	var list corev1.PodList
	return list.Items, json.NewDecoder(answer.Body).Decode(&list)
}

// Cgroups are the cgroups that a kubelet makes for all pods, and leaves, in every hierarchy.
func Cgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods"} {
		dirs, _ := filepath.Glob(pattern) // the pattern is well formed
		found = append(found, dirs...)
	}
	return found
}

// RemoveCgroups removes these cgroups with those below them. One that has processes stays.
func RemoveCgroups() {
	for _, dir := range Cgroups() {
		for _, pattern := range []string{"*/*", "*", ""} {
			below, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, d := range below {
				_ = unix.Rmdir(d) // files cannot be removed, and need not be
			}
		}
	}
}

// Uplink makes a device that leads nowhere, with an address of the node and its default route: a
// kubelet takes its node's address from there. The gateway is the first address of the network.
func Uplink(nodeIP string) error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "outside"}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(nodeIP), Mask: net.CIDRMask(24, 32)}}
	err := netlink.LinkAdd(link)
	if err == nil {
		peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "outside"}}
		err = errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(peer), netlink.LinkSetUp(link))
	}
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway(nodeIP)})
	}
	if err != nil {
		return fmt.Errorf("make a link for the node's address: %w", err)
	}
	return nil
}

// Hide puts an empty file system over each folder that a kubelet writes to at a fixed place, in
// this mount namespace.
func Hide(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount over %s: %w", dir, err)
		}
	}
	return nil
}

// gateway is the first address of the network of an address.
func gateway(nodeIP string) net.IP {
	ip := net.ParseIP(nodeIP).To4().Mask(net.CIDRMask(24, 32))
	ip[3] = 1
	return ip
}
