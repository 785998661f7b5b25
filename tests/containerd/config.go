package containerd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Release is an installed containerd.
type Release struct {
	Name string // "1.6" or "2.4", which it is configured for
	Bin  string // folder of containerd, ctr and containerd's own shim
}

// old says whether shims are started without parameters on their standard input, and the
// configuration is of version 2.
func (r Release) old() bool { return strings.HasPrefix(r.Name, "1.") }

func (d *Daemon) configFile() string { return filepath.Join(d.Dir, "config.toml") }

// socketDir is where shims' sockets are. Releases before 2.3 name none to a shim.
func (d *Daemon) socketDir() string {
	if d.Release.old() {
		return "/run/containerd/s"
	}
	return filepath.Join(d.Dir, "s")
}

// bundles is the folder of a namespace's bundles.
func (d *Daemon) bundles(namespace string) string {
	return filepath.Join(d.State, "io.containerd.runtime.v2.task", namespace)
}

// configure writes the daemon's configuration and what it names.
func (d *Daemon) configure() error {
	for host, mirror := range d.Mirrors {
		dir := filepath.Join(d.Dir, "hosts", host)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if _, err := url.Parse(mirror); err != nil {
			return err
		}
		text := fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", mirror, mirror)
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := d.configureNetwork(); err != nil {
		return err
	}
	text := d.config()
	if d.Render != nil {
		var err error
		if text, err = d.Render(text); err != nil {
			return err
		}
	}
	return os.WriteFile(d.configFile(), []byte(text), 0o644)
}

// config is the daemon's configuration.
func (d *Daemon) config() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	version, cri := 3, "plugins.'io.containerd.cri.v1.runtime'"
	if d.Release.old() {
		version, cri = 2, `plugins."io.containerd.grpc.v1.cri"`
	}
	say("version = %d\nroot = %q\nstate = %q", version, filepath.Join(d.Dir, "root"), d.State)
	say("[grpc]\naddress = %q\n[ttrpc]\naddress = %q", d.Socket, d.Socket+".ttrpc")
	if d.Release.old() {
		say("[%s]\nsandbox_image = %q\nstream_server_address = \"127.0.0.1\"\nrestrict_oom_score_adj = true", cri, d.Sandbox)
		say("[%s.registry]\nconfig_path = %q", cri, filepath.Join(d.Dir, "hosts"))
	} else {
		say("[plugins.'io.containerd.shim.v1.manager']\nsocket_dir = %q", d.socketDir())
		say("[plugins.'io.containerd.nri.v1.nri']\ndisable = true")
		if d.Render == nil {
			say("[plugins.'io.containerd.cri.v1.images']\nuse_local_image_pull = true") // the other way unpacks no foreign platform
		}
		say("[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = %q", d.Sandbox)
		say("[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = %q", filepath.Join(d.Dir, "hosts"))
		say("[plugins.'io.containerd.grpc.v1.cri']\nstream_server_address = \"127.0.0.1\"")
		say("[%s]\nenable_cdi = false\nrestrict_oom_score_adj = true", cri)
	}
	binDir := "bin_dirs = [%q]"
	if d.Release.old() {
		binDir = "bin_dir = %q"
	}
	say("[%s.cni]\nconf_dir = %q\n"+binDir, cri, filepath.Join(d.Dir, "cni"), d.CNI)
	say("[%s.containerd]\ndefault_runtime_name = %q", cri, d.Default)
	for _, r := range d.Runtimes {
		say("[%s.containerd.runtimes.%s]\nruntime_type = %q", cri, r.Name, r.Type)
		if r.Path != "" {
			say("runtime_path = %q", r.Path)
		}
		say("pod_annotations = [\"io.sunaba.*\"]\ncontainer_annotations = [\"io.sunaba.*\"]")
		if r.Options != "" {
			say("[%s.containerd.runtimes.%s.options]\n%s", cri, r.Name, r.Options)
		}
	}
	return b.String()
}

// configureNetwork gives pods a bridge of the machine's network namespace, which is the test's own.
func (d *Daemon) configureNetwork() error {
	dir := filepath.Join(d.Dir, "cni")
	if err := os.MkdirAll(dir, 0o755); err != nil || d.CNI == "" {
		return err
	}
	const list = `{"cniVersion":"1.0.0","name":"test","plugins":[
{"type":"bridge","bridge":"ctrd0","isGateway":true,"promiscMode":true,
 "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
{"type":"portmap","capabilities":{"portMappings":true},"backend":"nftables"}]}`
	return os.WriteFile(filepath.Join(dir, "10-test.conflist"), fmt.Appendf(nil, list, filepath.Join(d.Dir, "ipam")), 0o644)
}
