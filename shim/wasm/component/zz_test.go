package component

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	for _, f := range strings.Fields(os.Getenv("ZZ")) {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var m1, m2 runtime.MemStats
		runtime.ReadMemStats(&m1)
		start := time.Now()
		c, err := Decode(data)
		took := time.Since(start)
		runtime.ReadMemStats(&m2)
		if err != nil {
			fmt.Println(f, "ERR", err)
			continue
		}
		fmt.Println(f, len(data), took, "alloc", (m2.TotalAlloc-m1.TotalAlloc)>>10, "KiB: modules", len(c.Modules), "comps", len(c.Components), "coreinst", len(c.CoreInstances), "inst", len(c.Instances), "canons", len(c.Canons), "types", len(c.Types), "imports", len(c.Imports), "exports", len(c.Exports))
		if os.Getenv("ZZP") != "" {
			start = time.Now()
			p, err := c.Plan()
			fmt.Println("   world", c.World(), "plan", time.Since(start), err)
			if err == nil {
				nh, ne := 0, 0
				ops := map[string]int{}
				for _, i := range p.Instances {
					for _, b := range i.Imports {
						if b.Host != nil {
							nh++
							ops[b.Host.Op.String()]++
						} else {
							ne++
						}
					}
				}
				fmt.Println("   instances", len(p.Instances), "host", nh, "exports bound", ne, ops)
				for _, e := range p.Exports {
					fmt.Println("   lifted", e.Interface, e.Name, e.Core, e.Options.Async, e.Options.Callback, e.Options.PostReturn)
				}
			}
		}
	}
}
