package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
)

// hasBridge says whether the options' bridge is there.
func (w *world) hasBridge(o Options) bool {
	_, err := netlink.LinkByName(o.Embedded.Bridge)
	return err == nil
}

// A server that fails after it has opened its network leaves nothing in the kernel.
func TestNewChangesNothing(t *testing.T) {
	w := newWorld(t)
	o := w.options("a")
	n, err := New(o)
	must(t, err)
	if w.hasBridge(o) {
		t.Error("New made the bridge")
	}
	n.(Starter).Start()
	if !w.hasBridge(o) {
		t.Error("Start made no bridge")
	}
	must(t, n.Close())
	must(t, Destroy(o))
}

// With "never", and with "auto" once a container installs a network, pods wait for a CNI
// configuration, also after a restart.
func TestUse(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		use    Use
		mounts []string
		ready  bool
	}{
		{use: "", ready: true},
		{use: UseAlways, mounts: []string{"net.d"}, ready: true},
		{use: UseNever},
		{use: UseAuto, mounts: []string{"other", "."}, ready: false},
		{use: UseAuto, mounts: []string{"net.d/"}},
		{use: UseAuto, mounts: []string{"net.d/sub", "other", "none"}, ready: true},
	} {
		o := w.options("a")
		conf := filepath.Join(w.dir, "etc")
		must(t, os.MkdirAll(conf, 0o700))
		o.Use, o.ConfDir = c.use, filepath.Join(conf, "net.d")
		n, err := New(o)
		must(t, err)
		var folders []string
		for _, m := range append(c.mounts, "../../../../..") {
			folders = append(folders, filepath.Join(conf, m))
		}
		for range 2 { // the second time after a restart
			must(t, n.(Announced).Mounts(folders))
			n.(Starter).Start()
			err := n.Status(t.Context())
			if c.ready != (err == nil) || !c.ready && (!errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "no CNI configuration in ")) {
				t.Errorf("%+v: status %v", c, err)
			}
			if w.hasBridge(o) != c.ready {
				t.Errorf("%+v: bridge %v", c, w.hasBridge(o))
			}
			if !c.ready {
				p := w.pod(o, nil)
				if _, err := n.Setup(t.Context(), p); !errdefs.IsUnavailable(err) {
					t.Errorf("%+v: a pod is connected: %v", c, err)
				}
			}
			must(t, n.Close())
			n, err = New(o)
			must(t, err)
			folders = nil
		}
		must(t, n.Close())
		must(t, Destroy(o))
	}
	o := w.options("b")
	o.Use = "sometimes"
	if err := Check(o); !errdefs.IsInvalidArgument(err) {
		t.Errorf("use %q: %v", o.Use, err)
	}
}

// Two servers on one bridge would each undo what the other does.
func TestBridgeOfAnotherServer(t *testing.T) {
	w := newWorld(t)
	one, two := w.options("a"), w.options("b")
	two.Embedded.Bridge = one.Embedded.Bridge
	first, err := New(one)
	must(t, err)
	if _, err := New(two); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "network.bridge") {
		t.Fatalf("a second server with bridge %q: %v", two.Embedded.Bridge, err)
	}
	must(t, first.Close())
	second, err := New(two)
	must(t, err)
	must(t, second.Close())
	must(t, Destroy(two))
	must(t, Destroy(one))
}
