package network

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"path/filepath"
)

// TestPrices prints what a pod's network costs and holds it below what the design promises: a median of 5 ms up and
// 3 ms down, without host ports.
func TestPrices(t *testing.T) {
	w := newWorld(t)
	o := w.options("prices")
	o.Logger = nil
	n := w.start(o)
	times := map[string][]time.Duration{}
	measure := func(step string, fn func() error) {
		t.Helper()
		begin := time.Now()
		err := fn()
		times[step] = append(times[step], time.Since(begin))
		must(t, err)
	}
	for i := range 20 {
		p := Pod{ID: fmt.Sprintf("%064x", i+1), Name: fmt.Sprint("price-", i), Namespace: "test"}
		kind := ""
		if i%2 == 1 {
			kind = " with a host port"
			p.Ports = []PortMapping{{HostPort: 8080, ContainerPort: 80}}
		}
		dir := filepath.Join(o.SandboxesDir, p.ID, "ns")
		p.NetNS = filepath.Join(dir, netns.NetFile)
		measure("pin", func() error {
			return netns.PinNamespaces(dir, netns.PinOptions{Net: true, IPC: true, UTS: true, Hostname: "price"})
		})
		var r Result
		measure("setup"+kind, func() (err error) { r, err = n.Setup(context.Background(), p); return err })
		measure("teardown"+kind, func() error { return n.Teardown(context.Background(), p, r) })
		measure("unpin", func() error { return netns.UnpinNamespaces(dir) })
		time.Sleep(150 * time.Millisecond) // the kernel removes the link in the background
	}
	for range 20 {
		measure("status", func() error { return n.Status(context.Background()) })
	}
	limits := map[string]time.Duration{"setup": 5 * time.Millisecond, "teardown": 3 * time.Millisecond}
	for _, step := range []string{"pin", "setup", "setup with a host port", "teardown", "teardown with a host port", "unpin", "status"} {
		slices.Sort(times[step])
		median := times[step][len(times[step])/2]
		t.Logf("%-27s median %8v, worst %8v", step, median.Round(time.Microsecond), times[step][len(times[step])-1].Round(time.Microsecond))
		if limit := limits[step]; limit > 0 && median > limit {
			t.Errorf("%s: median %v, more than %v", step, median, limit)
		}
	}
}
