package network

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/host/durable"
)

const (
	// undoTimeout bounds the DEL after a failed ADD, whose own context may have ended.
	undoTimeout = 30 * time.Second
	// statusTimeout bounds the plugins' STATUS: it is asked every few seconds.
	statusTimeout = 10 * time.Second
)

// cniNetwork connects pods by CNI plugins. The configuration is read anew whenever it is needed:
// that is cheap beside running a plugin, and it is always the one that is there.
//
// Before a pod's ADD its attachment (configuration and arguments) is recorded durably in recordDir,
// and removed after its DEL: whatever happens in between, there is something to run DEL from.
type cniNetwork struct {
	confDir   string
	cacheDir  string
	recordDir string
	binDirs   []string
	cni       *libcni.CNIConfig
	log       *slog.Logger
}

// cniRecords is the folder with what is attached by CNI.
func cniRecords(o Options) string { return filepath.Join(o.StateDir, "cni") }

func newCNI(o Options) *cniNetwork {
	c := &cniNetwork{confDir: o.ConfDir, cacheDir: o.CacheDir, recordDir: cniRecords(o), binDirs: o.BinDirs, log: o.Logger}
	c.cacheDir = cmp.Or(c.cacheDir, libcni.CacheDir)
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: pluginLog{o.Logger}}}
	c.cni = libcni.NewCNIConfigWithCacheDir(o.BinDirs, c.cacheDir, exec)
	return c
}

// pluginLog receives what plugins write to stderr.
type pluginLog struct{ log *slog.Logger }

func (l pluginLog) Write(p []byte) (int, error) {
	l.log.Debug("CNI plugin", "stderr", strings.TrimSpace(string(p)))
	return len(p), nil
}

// attachment is one pod's place in one CNI network: all that DEL needs. It is what a Result's Raw
// holds.
type attachment struct {
	By           string          `json:"by"`
	ContainerID  string          `json:"containerID"`
	NetNS        string          `json:"netns"`
	IfName       string          `json:"ifName"`
	Args         [][2]string     `json:"args,omitempty"`
	Capabilities map[string]any  `json:"capabilities,omitempty"`
	Network      cniConfig       `json:"network"`
	Result       json.RawMessage `json:"result,omitempty"`
}

// Setup runs ADD of every plugin.
func (c *cniNetwork) Setup(ctx context.Context, conf cniConfig, p Pod) (r Result, err error) {
	list, err := conf.list()
	if err != nil {
		return r, err
	}
	a := attachment{By: byCNI, ContainerID: p.ID, NetNS: p.NetNS, IfName: podInterface, Network: conf}
	if a.Args, err = cniArgs(p); err != nil {
		return r, err
	}
	if a.Capabilities, err = capabilities(p); err != nil {
		return r, err
	}
	if err = c.record(a); err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, c.delete(ctx, a))
		}
	}()
	added, err := c.cni.AddNetworkList(ctx, list, a.runtimeConf(p.NetNS))
	if err != nil {
		return r, fmt.Errorf("add pod to CNI network %q: %w", list.Name, err)
	}
	result, err := types100.NewResultFromResult(added)
	if err != nil {
		return r, fmt.Errorf("read result of CNI network %q: %w", list.Name, err)
	}
	if r.IPs = podIPs(result); len(r.IPs) == 0 {
		return r, fmt.Errorf("add pod to CNI network %q: the plugins gave %s no address: %w", list.Name, podInterface, errdefs.ErrUnavailable)
	}
	if a.Result, err = json.Marshal(result); err != nil {
		return r, fmt.Errorf("keep result of CNI network %q: %w", list.Name, err)
	}
	r.Interface = podInterface
	r.Raw, err = json.Marshal(a)
	return r, err
}

// Teardown runs DEL with the configuration that ADD had. raw may be empty: then the record says, if
// there is one. Where ADD failed, or a plugin is missing, the present configuration is tried too.
func (c *cniNetwork) Teardown(ctx context.Context, p Pod, raw json.RawMessage) error {
	a, ok, err := c.recorded(p.ID)
	if err != nil {
		return err
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &a); err != nil {
			return fmt.Errorf("read network of pod %s: %w", p.ID, err)
		}
	} else if !ok {
		return nil
	}
	if p.NetNS != "" {
		a.NetNS = p.NetNS
	}
	if err = c.delete(ctx, a); err == nil || len(raw) > 0 && !errdefs.IsFailedPrecondition(err) {
		return err
	}
	// What was wrong with the configuration may have been corrected, and another one have come.
	var found bool
	if a.Network, found, _ = findConfig(c.confDir); found && c.delete(ctx, a) == nil {
		c.log.Warn("failed to remove pod by the CNI configuration that it has, the present one has removed it", "pod", p.ID, "file", a.Network.File, "error", err)
		return nil
	}
	return err
}

// delete runs DEL, without a namespace if that no longer exists, and forgets the attachment.
func (c *cniNetwork) delete(ctx context.Context, a attachment) error {
	list, err := a.Network.list()
	if err != nil {
		return err
	}
	path := a.NetNS
	if !netns.Pinned(path) {
		path = ""
	}
	if err := c.cni.DelNetworkList(ctx, list, a.runtimeConf(path)); err != nil {
		if strings.Contains(err.Error(), "failed to find plugin") { // a plugin says so of its IPAM too
			err = fmt.Errorf("%w: install it again, or link its name to /bin/true there to give up what it made: %w", err, errdefs.ErrFailedPrecondition)
		}
		return fmt.Errorf("delete pod from CNI network %q: %w", list.Name, err)
	}
	return c.forget(a.ContainerID)
}

func (a attachment) runtimeConf(nsPath string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: nsPath, IfName: a.IfName, Args: a.Args, CapabilityArgs: a.Capabilities}
}

// Status asks the plugins, those that understand it.
func (c *cniNetwork) Status(ctx context.Context, conf cniConfig) error {
	list, err := conf.list()
	if err != nil {
		return err
	}
	for _, plugin := range list.Plugins {
		if _, err := invoke.FindInPath(plugin.Network.Type, c.binDirs); err != nil {
			return fmt.Errorf("CNI network %q of %s: %w: %w", list.Name, conf.File, err, errdefs.ErrUnavailable)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if err := c.cni.GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("status of CNI network %q: %w: %w", list.Name, err, errdefs.ErrUnavailable)
	}
	return nil
}

// gc runs DEL for recorded pods that are not kept, whatever network they were in, and then lets the
// current network's plugins look for more. Attachments that libcni's caches know and that are not
// ours belong to another CNI runtime on this node, and are declared valid: plugins remove what is
// not.
func (c *cniNetwork) gc(ctx context.Context, conf cniConfig, keep map[string]bool) error {
	ids, err := c.records()
	if err != nil {
		return err
	}
	var errs []error
	ours := map[string]bool{}
	for _, id := range ids {
		ours[id] = true
		if !keep[id] {
			c.log.Info("removing dead pod from its CNI network", "pod", id)
			errs = append(errs, c.Teardown(ctx, Pod{ID: id}, nil))
		}
	}
	if conf.File == "" {
		return errors.Join(errs...)
	}
	list, err := conf.list()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	valid := map[types.GCAttachment]bool{}
	for id := range keep {
		valid[types.GCAttachment{ContainerID: id, IfName: podInterface}] = true
	}
	for _, dir := range []string{c.cacheDir, libcni.CacheDir} {
		cached, err := libcni.NewCNIConfigWithCacheDir(nil, dir, nil).GetCachedAttachments("")
		if err != nil {
			errs = append(errs, fmt.Errorf("list cached CNI attachments: %w", err))
		}
		for _, a := range cached {
			if a.Network == list.Name && !ours[a.ContainerID] {
				valid[types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}] = true
			}
		}
	}
	args := &libcni.GCArgs{ValidAttachments: slices.SortedFunc(maps.Keys(valid), func(x, y types.GCAttachment) int {
		return strings.Compare(x.ContainerID+x.IfName, y.ContainerID+y.IfName)
	})}
	if err := c.cni.GCNetworkList(ctx, list, args); err != nil {
		errs = append(errs, fmt.Errorf("garbage-collect CNI network %q: %w", list.Name, err))
	}
	return errors.Join(errs...)
}

// podIPs are the addresses of the pod's interface, in the plugins' order: the first is the pod's
// primary one.
func podIPs(r *types100.Result) []netip.Addr {
	var out []netip.Addr
	for _, ip := range r.IPs {
		if i := ip.Interface; i != nil && (*i < 0 || *i >= len(r.Interfaces) || r.Interfaces[*i].Name != podInterface) {
			continue
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			out = append(out, a.Unmap())
		}
	}
	return out
}

func (c *cniNetwork) recordFile(id string) string { return filepath.Join(c.recordDir, id+".json") }

func (c *cniNetwork) record(a attachment) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("record CNI attachment: %w", err)
	}
	if err := os.MkdirAll(c.recordDir, 0o700); err != nil {
		return fmt.Errorf("record CNI attachment: %w", err)
	}
	if err := durable.Write(c.recordFile(a.ContainerID), data, 0o600); err != nil {
		return fmt.Errorf("record CNI attachment: %w", err)
	}
	return nil
}

func (c *cniNetwork) recorded(id string) (a attachment, ok bool, err error) {
	data, err := os.ReadFile(c.recordFile(id))
	if errors.Is(err, os.ErrNotExist) {
		return a, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err != nil {
		return a, false, fmt.Errorf("read CNI attachment %q: %w", c.recordFile(id), err)
	}
	return a, true, nil
}

func (c *cniNetwork) forget(id string) error {
	if err := os.Remove(c.recordFile(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget CNI attachment: %w", err)
	}
	return nil
}

// records are the ids of the recorded pods.
func (c *cniNetwork) records() ([]string, error) {
	files, err := os.ReadDir(c.recordDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list CNI attachments: %w", err)
	}
	var ids []string
	for _, f := range files {
		if id, ok := strings.CutSuffix(f.Name(), ".json"); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
