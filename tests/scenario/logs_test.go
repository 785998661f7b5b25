package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var dropped = regexp.MustCompile(`^sunaba: dropped (\d+) lines of (\d+) bytes beyond the log's limits \(rate=1024,burst=10240,size=1048576\)$`)

// A flood of lines leaves a log that is no larger than it may be and accounts for every line,
// whatever runs; the container is not slowed. A handler with limits of its own has those alone.
func TestLogLimits(t *testing.T) {
	m := start(t, "[logs]\nrate_kib = 1\nmax_size_mib = 1\n[handlers.crun.logs]\nmax_size_mib = 4")
	m.pull(world.Busybox)
	m.pull(world.Guest)
	const all = 50000
	var flood strings.Builder
	for i := range all {
		fmt.Fprintf(&flood, "line %d\n", i)
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "flood"), []byte(flood.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			config := sh("cat /v/flood")
			if handler == "wasm" {
				config = containerConfig(world.Guest, "cat", "/v/flood")
			}
			config.Mounts = []*runtime.Mount{{ContainerPath: "/v", HostPath: dir, Readonly: true}}
			c := m.in(t).run(handler).begin(config)
			c.expectEnd(0, "Completed")
			kept, lost, notes := 0, 0, 0
			for _, l := range c.lines() {
				if n := dropped.FindStringSubmatch(l.Text); n != nil {
					some, err := strconv.Atoi(n[1])
					if err != nil {
						t.Fatal(err)
					}
					lost += some
					notes++
					continue
				}
				if want := fmt.Sprintf("line %d", kept+lost); l.Text != want {
					t.Fatalf("%q comes after %d lines that were kept and %d that were dropped", l.Text, kept, lost)
				}
				kept++
			}
			if handler == "crun" {
				if kept != all || lost != 0 {
					t.Errorf("%d lines were kept and %d dropped of %d, with room for all", kept, lost, all)
				}
				return
			}
			if kept+lost != all || kept == 0 || notes == 0 {
				t.Errorf("%d lines were kept and %d dropped of %d", kept, lost, all)
			}
			if info, err := os.Stat(c.log); err != nil || info.Size() > 128<<10 {
				t.Errorf("the log has %d bytes, %v", info.Size(), err)
			}
		})
	}
}
