package network

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/lease"
)

// What set a pod up, in Result.Raw.
const (
	byEmbedded = "embedded"
	byCNI      = "cni"
)

func rawEmbedded() json.RawMessage { return json.RawMessage(`{"by":"` + byEmbedded + `"}`) }

// switching is the Network that New returns: CNI as long as there is a configuration, else the
// embedded network.
type switching struct {
	confDir      string
	use          Use
	sandboxesDir string
	cni          *cniNetwork
	embedded     *embedded
}

// New opens the node's network and claims the embedded network's bridge for this process. It
// changes nothing in the kernel, see Starter.
//
// # Errors
//
// ErrInvalidArgument for options that cannot be; ErrFailedPrecondition when another server uses
// StateDir or the bridge.
func New(o Options) (Network, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.StateDir == "" {
		return nil, fmt.Errorf("open network: no state directory: %w", errdefs.ErrInvalidArgument)
	}
	e, err := newEmbedded(o)
	if err != nil {
		return nil, err
	}
	if e.claim, err = claimBridge(e.bridge, o.Logger); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &switching{confDir: o.ConfDir, use: o.Use, sandboxesDir: o.SandboxesDir, cni: newCNI(o), embedded: e}, nil
}

// Check says what New would refuse of the options themselves, on any machine.
//
// # Errors
//
// ErrInvalidArgument.
func Check(o Options) error {
	_, err := given(o)
	return err
}

// Destroy removes everything of the embedded network that o describes: its rules, bridge and links,
// and its choices and leases on disk. It is idempotent. Pods that live on have no network
// afterwards. CNI networks are not touched.
//
// # Errors
//
// ErrFailedPrecondition when a server uses StateDir.
func Destroy(o Options) error {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	e, err := newEmbedded(o)
	if err != nil {
		return err
	}
	err = errors.Join(e.destroy(), e.Close())
	for _, dir := range []string{newCNI(o).recordDir, o.StateDir} {
		if rmErr := os.Remove(dir); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) && !errors.Is(rmErr, unix.ENOTEMPTY) {
			err = errors.Join(err, fmt.Errorf("remove network state: %w", rmErr))
		}
	}
	return err
}

func (s *switching) Setup(ctx context.Context, p Pod) (Result, error) {
	if p.ID == "" || p.NetNS == "" {
		return Result{}, fmt.Errorf("connect pod %q: it has no id or no network namespace: %w", p.ID, errdefs.ErrInvalidArgument)
	}
	conf, found, err := findConfig(s.confDir)
	switch {
	case err != nil:
		return Result{}, err
	case found:
		return s.cni.Setup(ctx, conf, p)
	}
	if err := s.waits(); err != nil {
		return Result{}, fmt.Errorf("connect pod: %w", err)
	}
	return s.embedded.Setup(ctx, p)
}

func (s *switching) Teardown(ctx context.Context, p Pod, r Result) error {
	var by struct {
		By string `json:"by"`
	}
	if len(r.Raw) > 0 {
		if err := json.Unmarshal(r.Raw, &by); err != nil {
			return fmt.Errorf("read network of pod %s: %w", p.ID, err)
		}
	}
	switch by.By {
	case byEmbedded:
		return s.embedded.Teardown(ctx, p)
	case byCNI:
		return s.cni.Teardown(ctx, p, r.Raw)
	case "": // the caller lost it: whichever knows the pod
		return errors.Join(s.embedded.Teardown(ctx, p), s.cni.Teardown(ctx, p, nil))
	}
	return fmt.Errorf("tear down pod %s: unknown network %q: %w", p.ID, by.By, errdefs.ErrInvalidArgument)
}

func (s *switching) Status(ctx context.Context) error {
	conf, found, err := findConfig(s.confDir)
	switch {
	case err != nil:
		return err
	case found:
		return s.cni.Status(ctx, conf)
	}
	if err := s.waits(); err != nil {
		return err
	}
	return s.embedded.Status(ctx)
}

func (s *switching) GC(ctx context.Context, keep []string) error {
	kept := map[string]bool{}
	for _, id := range keep {
		kept[id] = true
	}
	conf, _, err := findConfig(s.confDir)
	return errors.Join(err, s.cni.gc(ctx, conf, kept), gcPins(s.sandboxesDir, kept), s.embedded.gc(kept))
}

// UseRange implements Ranged.
func (s *switching) UseRange(prefixes []string) error {
	var told lease.Subnets
	for _, text := range prefixes {
		p, v6 := &told.V4, strings.Contains(text, ":")
		if v6 {
			p = &told.V6
		}
		if p.IsValid() {
			return fmt.Errorf("range %q: there is one of its family already: %w", text, errdefs.ErrInvalidArgument)
		}
		var err error
		if *p, err = parseSubnet(text, v6); err != nil {
			return err
		}
	}
	return s.embedded.useRange(told)
}

func (s *switching) Close() error { return s.embedded.Close() }
