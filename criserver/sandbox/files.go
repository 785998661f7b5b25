package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

const (
	hostsFile    = "hosts"
	hostnameFile = "hostname"
	resolvFile   = "resolv.conf"
	shmDir       = "shm"
	shmOptions   = "mode=1777,size=65536k"
)

// Folders are where a sandbox has its files.
type Folders struct {
	ID string
	// Dir holds the containers' bundles, each under the container's id, and is the working folder
	// of a shim of the pod's own.
	Dir   string
	files string // folder of hosts, hostname and resolv.conf
}

func (f Folders) create(context.Context) error {
	for _, dir := range []string{f.files, f.Dir} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

func (f Folders) remove(context.Context) error {
	return errors.Join(removeTree(f.files), removeTree(f.Dir))
}

// pins is the folder of the pinned namespaces.
func (f Folders) pins() string { return filepath.Join(f.Dir, "ns") }

func (f Folders) pin(config *runtime.PodSandboxConfig) error {
	o := Pins(config)
	o.Sysctls = config.GetLinux().GetSysctls()
	return netns.PinNamespaces(f.pins(), o)
}

func (f Folders) unpin(context.Context) error { return netns.UnpinNamespaces(f.pins()) }

// Files are the host paths of what a sandbox gives to each of its containers.
func (f Folders) Files(config *runtime.PodSandboxConfig) spec.Files {
	files := spec.Files{
		Hosts: filepath.Join(f.files, hostsFile), Hostname: filepath.Join(f.files, hostnameFile), ResolvConf: filepath.Join(f.files, resolvFile),
	}
	if Pins(config).IPC {
		files.Shm = filepath.Join(f.Dir, shmDir)
	}
	return files
}

// write writes hosts, hostname and resolv.conf and mounts the pod's shared memory. The files are
// not synced: they are of no use after a reboot.
func (f Folders) write(rec state.Sandbox, hostname string) error {
	config := rec.Config.Value
	resolv, err := resolvConf(config, Pins(config).Net)
	if err != nil {
		return err
	}
	files := f.Files(config)
	for path, content := range map[string]string{
		files.Hosts: hosts(hostname, rec.Network.IPs), files.Hostname: hostname + "\n", files.ResolvConf: resolv,
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
		if err := give(path, config); err != nil {
			return err
		}
	}
	if files.Shm == "" {
		return nil
	}
	if err := os.Mkdir(files.Shm, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("shm", files.Shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, shmOptions); err != nil {
		return fmt.Errorf("mount shared memory %q: %w", files.Shm, err)
	}
	return give(files.Shm, config)
}

func (f Folders) unmountShm(context.Context) error {
	if err := mount.Detach(filepath.Join(f.Dir, shmDir)); err != nil {
		return fmt.Errorf("remove shared memory: %w", err)
	}
	return nil
}

// hosts is the pod's /etc/hosts, for clients that do not bring their own as the kubelet does.
func hosts(hostname string, ips []netip.Addr) string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	if len(ips) == 0 && hostname != "localhost" {
		fmt.Fprintf(&b, "127.0.1.1\t%s\n", hostname)
	}
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, hostname)
	}
	return b.String()
}

const (
	hostResolv = "/etc/resolv.conf"
	// realResolv is where systemd-resolved keeps the servers behind its stub on 127.0.0.53, which a
	// pod's network namespace does not have.
	realResolv = "/run/systemd/resolve/resolv.conf"
	// maxResolv bounds both.
	maxResolv = 1 << 20
)

// resolvConf is the pod's /etc/resolv.conf: the configuration's, or the host's if it says nothing.
func resolvConf(config *runtime.PodSandboxConfig, ownNetwork bool) (string, error) {
	if dns := config.GetDnsConfig(); dns != nil {
		return resolvText(dns), nil
	}
	return HostResolv(ownNetwork)
}

// HostResolv is the host's /etc/resolv.conf, "" without one, as a pod can use it: one with a
// network of its own does not reach a stub on the host's loopback.
func HostResolv(ownNetwork bool) (string, error) {
	data, err := regular.ReadConfigured(hostResolv, maxResolv)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the host's resolver configuration: %w", err)
	}
	if ownNetwork && onlyLoopback(string(data)) {
		if real, err := regular.ReadConfigured(realResolv, maxResolv); err == nil {
			data = real
		}
	}
	return string(data), nil
}

func resolvText(dns *runtime.DNSConfig) string {
	var b strings.Builder
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.GetSearches(), " "))
	}
	for _, server := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.GetOptions(), " "))
	}
	return b.String()
}

// onlyLoopback says that every name server of a resolv.conf is on the host's own loopback.
func onlyLoopback(resolv string) bool {
	found := false
	for line := range strings.Lines(resolv) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		ip, err := netip.ParseAddr(f[1])
		if err != nil || !ip.IsLoopback() {
			return false
		}
		found = true
	}
	return found
}

// writeBundle writes an OCI bundle's config.json. The folder is on a tmpfs as a rule; nothing is
// synced.
func writeBundle(dir string, s *specs.Spec) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// removeTree removes a folder. What is still mounted below it is unmounted, so that nothing of it
// is deleted.
func removeTree(dir string) error {
	err := space.Remove(dir) // without a look at the table of all mounts, which grows with the pods
	if errors.Is(err, unix.EBUSY) {
		if err = mount.DetachBelow(dir); err == nil {
			err = space.Remove(dir)
		}
	}
	return err
}

func handlerType(rec state.Sandbox) runtimeclass.Type { return runtimeclass.Type(rec.HandlerType) }

// RemoveBundle removes the bundle of one of the sandbox's containers. One that is not there is no
// error.
func (f Folders) RemoveBundle(id string) error {
	if err := removeTree(filepath.Join(f.Dir, id)); err != nil {
		return fmt.Errorf("remove bundle %q: %w", id, err)
	}
	return nil
}
