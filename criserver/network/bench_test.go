package network

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
)

// BenchmarkPod measures what a pod's network costs, each step's median: what the design promises is
// at most 5 ms for setup and 3 ms for teardown without host ports. It waits between pods, because
// the kernel removes their links in the background and would be measured too.
func BenchmarkPod(b *testing.B) {
	for name, ports := range map[string][]PortMapping{"plain": nil, "hostport": {{HostPort: 8080, ContainerPort: 80}}} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			o := w.options(name)
			o.Logger = nil
			n := w.start(o)
			times := map[string][]time.Duration{}
			measure := func(step string, fn func() error) {
				begin := time.Now()
				err := fn()
				times[step] = append(times[step], time.Since(begin))
				must(b, err)
			}
			i := 0
			for b.Loop() {
				i++
				p := Pod{ID: fmt.Sprintf("%012x%052x", i, 0), Name: fmt.Sprint("price-", i), Namespace: "test", Ports: ports}
				dir := filepath.Join(o.SandboxesDir, p.ID, "ns")
				p.NetNS = filepath.Join(dir, netns.NetFile)
				var r Result
				measure("pin", func() error {
					return netns.PinNamespaces(dir, netns.PinOptions{Net: true, IPC: true, UTS: true, Hostname: "price"})
				})
				measure("setup", func() (err error) { r, err = n.Setup(context.Background(), p); return err })
				measure("teardown", func() error { return n.Teardown(context.Background(), p, r) })
				measure("unpin", func() error { return netns.UnpinNamespaces(dir) })
				measure("status", func() error { return n.Status(context.Background()) })
				time.Sleep(100 * time.Millisecond)
			}
			for step, all := range times {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, step+"-ms")
			}
			b.ReportMetric(0, "ns/op") // says nothing: most of it is waiting
		})
	}
}
