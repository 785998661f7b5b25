// Package setup finds what is wrong with how a node is set up for pods from manifests, for "sunaba
// check".
package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/criserver/check"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/host/systemd/logind"
)

// Options say what is looked at.
type Options struct {
	// Manifests are the folders of manifests.
	Manifests []string
	// Socket is the CRI socket of the server that runs their pods.
	Socket string
	// Grace is how long a shutdown of the node takes at most; 0 is not asked about. DropIn says
	// that the server raises logind's limit by itself, Served that one runs.
	Grace          time.Duration
	DropIn, Served bool

	proc string
}

// Look looks at everything. What cannot be looked at is a finding too.
func Look(ctx context.Context, o Options) []check.Finding {
	if o.proc == "" {
		o.proc = "/proc"
	}
	var found []check.Finding
	for _, dir := range o.Manifests {
		found = append(found, writable(dir)...)
	}
	found = append(found, o.kubelets()...)
	return append(found, o.delay(ctx)...)
}

// writable finds that others than root can write a folder of manifests, and so are root (SE13).
func writable(dir string) []check.Finding {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is waited for
	}
	f := check.Finding{Subject: "folder of manifests " + dir, Do: "chown root:root " + dir + " && chmod go-w " + dir}
	if err != nil {
		f.What, f.Do = "it cannot be looked at: "+err.Error(), "make it readable for root"
		return []check.Finding{f}
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		f.What = fmt.Sprintf("everybody can write it (mode %04o), and its pods can do what root can", mode)
	case ok && owner.Uid != 0:
		f.What = fmt.Sprintf("user %d owns it, and its pods can do what root can", owner.Uid)
	case ok && mode&0o020 != 0 && owner.Gid != 0:
		f.What = fmt.Sprintf("group %d can write it (mode %04o), and its pods can do what root can", owner.Gid, mode)
	default:
		return nil
	}
	return []check.Finding{f}
}

// kubelets finds kubelets that use the server of the agent: they kill its pods (A.3).
func (o Options) kubelets() []check.Finding {
	own, err := os.Stat(o.Socket)
	if err != nil {
		return nil // nobody uses a socket that is not there
	}
	processes, err := filepath.Glob(filepath.Join(o.proc, "[0-9]*"))
	if err != nil {
		return nil
	}
	var found []check.Finding
	for _, dir := range processes {
		name, err := regular.Read(filepath.Join(dir, "comm"), 64)
		if err != nil || strings.TrimSpace(string(name)) != "kubelet" {
			continue
		}
		socket := endpoint(dir)
		if used, err := os.Stat(filepath.Join(dir, "root", socket)); err != nil || !os.SameFile(own, used) {
			continue
		}
		found = append(found, check.Finding{
			Subject: "kubelet (process " + filepath.Base(dir) + ")",
			What:    "it uses " + socket + ", whose server runs pods from manifests, and kills those pods because it does not know them",
			Do:      "empty pods.manifests of the configuration, or start a second server for one of the two (docs/operations.md)",
		})
	}
	return found
}

// endpoint is the path of the CRI socket that a kubelet's flags or its configuration file name.
func endpoint(process string) string {
	const usual, most = "unix:///run/containerd/containerd.sock", 1 << 20
	line, err := regular.Read(filepath.Join(process, "cmdline"), most)
	if err != nil {
		return ""
	}
	args := strings.Split(string(line), "\x00")
	address := flag(args, "container-runtime-endpoint")
	if file := flag(args, "config"); address == "" && file != "" {
		var c struct {
			ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
		}
		data, err := regular.Read(filepath.Join(process, "root", file), most)
		if err == nil && yaml.Unmarshal(data, &c) == nil {
			address = c.ContainerRuntimeEndpoint
		}
	}
	if address == "" {
		address = usual
	}
	return strings.TrimPrefix(address, "unix://")
}

// flag is the value of a flag, "" without.
func flag(args []string, name string) string {
	value := ""
	for i, arg := range args {
		arg = strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
		if v, ok := strings.CutPrefix(arg, name+"="); ok {
			value = v
		} else if arg == name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// delay finds that logind does not wait for long enough when the machine shuts down (SD2).
func (o Options) delay(ctx context.Context) []check.Finding {
	if o.Grace == 0 || o.DropIn && !o.Served {
		return nil
	}
	have, err := maxDelay(ctx)
	if errdefs.IsNotFound(err) || err == nil && have >= o.Grace {
		return nil
	}
	seconds := strconv.FormatInt(int64((o.Grace+time.Second-1)/time.Second), 10)
	f := check.Finding{
		Subject: "systemd-logind", What: fmt.Sprintf("a shutdown of the machine waits for %s at most, and pods.shutdown_grace is %s: pods may be killed", have, o.Grace),
		Do: "set pods.logind_drop_in of the configuration, or InhibitDelayMaxSec=" + seconds + " in /etc/systemd/logind.conf",
	}
	if o.DropIn {
		f.Do = "restart the server; if that is no help, look for a file that sets InhibitDelayMaxSec: systemd-analyze cat-config systemd/logind.conf"
	}
	if err != nil {
		f.What = "it does not say how long a shutdown of the machine waits: " + err.Error()
	}
	return []check.Finding{f}
}

// askTime is how long logind has to answer.
const askTime = 10 * time.Second

func maxDelay(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := logind.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.MaxDelay(ctx)
}
