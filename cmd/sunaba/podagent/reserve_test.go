package podagent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/pods/agent/node"
)

type cgroups struct {
	calls []uint64
	fails error
}

func (c *cgroups) LimitOwn(memory uint64) error {
	c.calls = append(c.calls, memory)
	return c.fails
}

// RE7: the limit is taken away if it was set before, also by a server that ended, and not otherwise:
// who runs the machine may have set another one.
func TestReserveMemory(t *testing.T) {
	dir, c := t.TempDir(), &cgroups{}
	if err := os.Mkdir(filepath.Join(dir, "pods"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, memory := range []uint64{0, 100, 100, 0, 0} {
		if err := ReserveMemory(c, dir, memory); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(c.calls); got != "[100 100 0]" {
		t.Errorf("calls %s", got)
	}
	c.calls, c.fails = nil, errors.New("in use")
	for _, memory := range []uint64{100, 0} {
		if err := ReserveMemory(c, dir, memory); !errors.Is(err, c.fails) {
			t.Errorf("error %v", err)
		}
	}
	f := node.Facts{}
	f.Node.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("5Mi")}
	config := Default()
	if got := memoryLimit(config, f); got != 0 {
		t.Errorf("without reserved_memory the limit is %d", got)
	}
	config.ReservedMemory = "3Mi"
	if got := memoryLimit(config, f); got != 5<<20 {
		t.Errorf("the limit is %d, want what is allocatable", got)
	}
	c.fails = nil
	if err := ReserveMemory(c, dir, 0); err != nil { // tried again
		t.Error(err)
	}
	if got := fmt.Sprint(c.calls); got != "[100 0 0]" {
		t.Errorf("calls %s", got)
	}
}

// The node's event about the limit is a kubelet's, and there is none without a limit.
func TestEnforce(t *testing.T) {
	dir, c := t.TempDir(), &cgroups{}
	if err := os.Mkdir(filepath.Join(dir, "pods"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{Cgroups: c, State: dir, Logger: slog.New(slog.DiscardHandler)}
	got := fmt.Sprint(enforce(o, 0), enforce(o, 100))
	c.fails = errors.New("in use")
	got += fmt.Sprint(enforce(o, 200))
	if want := `[] [{Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods}]` +
		`[{Warning FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits ["sunaba"]: in use}]`; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}
