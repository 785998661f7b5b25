package machine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
	"github.com/sunaba-project/sunaba/tests/pages"
)

const (
	kubernetesBin = "../tools-kubelet/bin"    // folder with Kubernetes' programs and etcd, as tests/tools-kubelet builds them
	containerdBin = "../tools-containerd/bin" // the same of containerd and CNI plugins
	stepTimeout   = 10 * time.Minute          // of a block of the page and of a wait for Kubernetes
)

// controlPlane has the images that kubeadm v1.36.0 wants, by the program in each.
var controlPlane = map[string]string{
	"kube-apiserver": "kube-apiserver:v1.36.0", "kube-controller-manager": "kube-controller-manager:v1.36.0",
	"kube-scheduler": "kube-scheduler:v1.36.0", "etcd": "etcd:3.6.8-0",
}

// prepareCluster makes this machine one on which `kubeadm init` can be run: it has an address, CNI
// plugins, containerd and the kubelet as services, and a registry with all images.
const prepareCluster = `
set -eu
ip link add eth0 type veth peer name wire
ip addr add 10.9.0.1/24 dev eth0
ip link set eth0 up && ip link set wire up
ip route add default via 10.9.0.254
sysctl -qw net.ipv4.ip_forward=1
touch /etc/resolv.conf
# Kubelets want to know the frequency of a processor, which User-Mode Linux does not say.
sed '0,/^flags/s//cpu MHz\t\t: 1000.000\nflags/' /proc/cpuinfo >/run/cpuinfo
mount --bind /run/cpuinfo /proc/cpuinfo
mkdir -p /etc/cni/net.d /opt/cni/bin /etc/containerd /var/lib/containerd
mount -t tmpfs tmpfs /var/lib/containerd
cp "$2"/bridge "$2"/host-local "$2"/loopback /opt/cni/bin/
cp "$2"/containerd "$2"/containerd-shim-runc-v2 "$2"/ctr ../tools/bin/crictl "$1"/kubeadm "$1"/kubectl "$1"/kubelet /usr/local/bin/
cd testdata/kubeadm
cp 10-bridge.conflist /etc/cni/net.d/
cp containerd.toml /etc/containerd/config.toml
cp containerd.service kubelet.service /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now containerd
systemctl enable kubelet
`

// The node of a cluster that kubeadm made moves from containerd to Sunaba and back as
// docs/replace-containerd.md says. Then kubeadm makes and ends a cluster on Sunaba alone.
func TestKubeadm(t *testing.T) {
	run(t, "sh", "-c", prepareCluster, "sh", kubernetesBin, containerdBin)
	serveCluster(t)
	t.Setenv("KUBECONFIG", "/etc/kubernetes/admin.conf")
	data, err := os.ReadFile("../../docs/replace-containerd.md")
	check(t, err)
	page := strings.ReplaceAll(string(data), "NODE", "machine")

	initialize(t, "testdata/kubeadm/kubeadm.yaml", "containerd://")
	kubectl(t, "create", "deployment", "app", "--image=localhost:5000/sunaba/busybox:v1", "--", "sleep", "1000000")
	kubectl(t, "apply", "-f", "testdata/kubeadm/daemonset.yaml")
	answer(t, "deployment/app", "daemonset/each")

	folder := t.TempDir()
	check(t, binaries.Provide(filepath.Join(folder, "programs/amd64"), binaries.Sunaba, binaries.Shim))
	first, _ := debs(t, folder)
	run(t, "dpkg", "-i", first)
	const never = "[network]\nembedded = \"never\"\n"
	if !strings.Contains(page, "```toml\n"+never+"```\n") {
		t.Fatalf("the page's configuration is not %q", never)
	}
	check(t, os.WriteFile("/etc/sunaba/config.toml", []byte(never), 0o644))

	follow(t, page, "## Before", "## k3s")
	runtimeIs(t, "sunaba://")
	answer(t, "deployment/app", "daemonset/each")
	// The step of an upgrade that writes the kubelet's configuration.
	run(t, "kubeadm", "upgrade", "node", "phase", "kubelet-config")
	if text, err := os.ReadFile("/var/lib/kubelet/config.yaml"); err != nil || !strings.Contains(string(text), "containerRuntimeEndpoint: unix:///run/sunaba/sunaba.sock\n") {
		t.Errorf("the kubelet's configuration after an upgrade: %v: %s", err, text)
	}
	kubectl(t, "run", "linux", "--image=localhost:5000/sunaba/greeter:v1", "--restart=Never")
	kubectl(t, "apply", "-f", "../../examples/greeter-pod.yaml")
	kubectl(t, "wait", "--for=condition=Ready", "pod/linux", "pod/greeter", "--timeout=10m")
	for pod, want := range map[string]string{"linux": "Hello from linux/amd64 on linux", "greeter": "Hello from wasip1/wasm on greeter"} {
		ip := kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
		if got := run(t, "curl", "-s", "http://"+ip+":8080/"); got != want {
			t.Errorf("pod %s answers %q", pod, got)
		}
		if got := kubectl(t, "logs", pod); !strings.Contains(got, "GET /") {
			t.Errorf("the log of pod %s is %q", pod, got)
		}
	}
	kubectl(t, "delete", "pod", "linux", "greeter")

	follow(t, page, "## Go back", "")
	runtimeIs(t, "containerd://")
	answer(t, "deployment/app", "daemonset/each")

	run(t, "kubeadm", "reset", "-f")
	run(t, "systemctl", "disable", "--now", "containerd")
	run(t, "systemctl", "enable", "--now", "sunaba")
	data, err = os.ReadFile("testdata/kubeadm/kubeadm.yaml")
	check(t, err)
	config := filepath.Join(t.TempDir(), "kubeadm.yaml")
	text := strings.Replace(string(data), "nodeRegistration:\n", "nodeRegistration:\n  criSocket: unix:///run/sunaba/sunaba.sock\n", 1)
	check(t, os.WriteFile(config, []byte(text), 0o644))
	initialize(t, config, "sunaba://")
	// What the page says of `kubeadm reset`: it takes no notice of a socket that is not named.
	run(t, "kubeadm", "reset", "-f")
	if pods := strings.Fields(crictl(t, "pods", "-q")); len(pods) != len(controlPlane) {
		t.Errorf("after kubeadm reset without a socket Sunaba has pods %v", pods)
	}
	run(t, "kubeadm", "reset", "-f", "--cri-socket", "unix:///run/sunaba/sunaba.sock")
	if pods := crictl(t, "pods", "-q"); pods != "" {
		t.Errorf("after kubeadm reset Sunaba has pods %s", pods)
	}
	if said, err := combined("sunaba", "check"); err != nil || !strings.HasPrefix(said, "0 findings") {
		t.Errorf("sunaba check: %v: %s", err, said)
	}
	run(t, "systemctl", "stop", "sunaba")
}

// serveCluster serves the images of the control plane and of the pods on localhost:5000.
func serveCluster(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	registry, err := oci.Serve("127.0.0.1:5000")
	check(t, err)
	t.Cleanup(func() { registry.Close() })
	for name, ref := range controlPlane {
		program, err := os.ReadFile(filepath.Join(kubernetesBin, name))
		check(t, err)
		layer, err := oci.Layer(oci.Dir("usr", 0o755), oci.Dir("usr/local", 0o755), oci.Dir("usr/local/bin", 0o755), oci.Program("usr/local/bin/"+name, program))
		check(t, err)
		image, err := oci.Image(oci.Host(), v1.Config{Env: []string{"PATH=/usr/local/bin"}, Entrypoint: []string{name}}, layer)
		check(t, err)
		_, err = registry.Push(ctx, ref, image)
		check(t, err)
	}
	pause, err := oci.Busybox(oci.Host(), v1.Config{Entrypoint: []string{"sleep", "2147483647"}})
	check(t, err)
	_, err = registry.Push(ctx, "pause:3.10.2", pause)
	check(t, err)
	for _, example := range oci.Examples() {
		if example.Name == "greeter" || example.Name == "busybox" {
			_, err = example.Push(ctx, registry, "../../examples")
			check(t, err)
		}
	}
}

// initialize runs `kubeadm init` with a configuration, and wants a ready node of a runtime.
func initialize(t *testing.T, config, runtime string) {
	t.Helper()
	started := time.Now()
	said, err := combined("kubeadm", "init", "--config", config)
	if err != nil {
		t.Fatalf("kubeadm init: %v: %s\n%s%s", err, said, journald("kubelet"), journald("sunaba"))
	}
	for line := range strings.Lines(said) {
		// These two are about the machine: its kernel and its one processor.
		if strings.Contains(line, "[WARNING ") && !strings.Contains(line, "[WARNING SystemVerification]") && !strings.Contains(line, "[WARNING NumCPU]") {
			t.Errorf("kubeadm init: %s", line)
		}
	}
	kubectl(t, "wait", "--for=condition=Ready", "node/machine", "--timeout=10m")
	runtimeIs(t, runtime)
	t.Logf("kubeadm init: %.0f s", time.Since(started).Seconds())
}

// runtimeIs wants that the node's runtime has this prefix.
func runtimeIs(t *testing.T, prefix string) {
	t.Helper()
	if got := kubectl(t, "get", "node", "machine", "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}"); !strings.HasPrefix(got, prefix) {
		t.Fatalf("the node's runtime is %q, want %s", got, prefix)
	}
}

// answer waits until a command can be run in a pod of each of these.
func answer(t *testing.T, workloads ...string) {
	t.Helper()
	for _, workload := range workloads {
		var err error
		if !node.Within(3*node.Patience, func() bool {
			_, err = try("kubectl", "exec", workload, "--", "true")
			return err == nil
		}) {
			t.Fatalf("%v\n%s%s", err, journald("kubelet"), journald("sunaba"))
		}
	}
}

// follow runs the blocks of the page from one line to another, or to its end, in the project's
// folder.
func follow(t *testing.T, page, from, to string) {
	t.Helper()
	begin, end := strings.Index(page, "\n"+from+"\n"), len(page)
	if to != "" {
		end = strings.Index(page, "\n"+to+"\n")
	}
	if begin < 0 || end < begin {
		t.Fatalf("the page has no part from %q to %q", from, to)
	}
	// Lines keep their numbers.
	blocks, err := pages.Read(strings.Repeat("\n", strings.Count(page[:begin], "\n")) + page[begin:end])
	check(t, err)
	if len(blocks) < 3 {
		t.Fatalf("the part from %q has %d blocks", from, len(blocks))
	}
	started := time.Now()
	if err := pages.Run(t.Context(), "docs/replace-containerd.md", blocks, "../..", stepTimeout); err != nil {
		t.Fatalf("%v\n%s%s", err, journald("kubelet"), journald("sunaba"))
	}
	t.Logf("%s: %d blocks in %.0f s", from, len(blocks), time.Since(started).Seconds())
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, "kubectl", args...)
}
