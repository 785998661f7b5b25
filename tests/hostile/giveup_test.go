package hostile

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// A client leaves in the middle of a start, at every moment of it. What it left is no container
// that runs, and the pod can be removed: a process that began unseen would outlive the container's
// record.
func TestStartThatIsGivenUp(t *testing.T) {
	for _, handler := range []string{"runc", "wasm"} {
		t.Run(handler, func(t *testing.T) {
			n := start(t)
			ref := world.busybox
			if handler == "wasm" {
				ref = world.guest
			}
			n.pull(ref)
			left := 0
			for after := time.Duration(0); after < 60*time.Millisecond; after += 2 * time.Millisecond {
				p := n.run(handler)
				config := sh("trap 'exit 0' TERM; sleep 1000 & wait")
				if handler == "wasm" {
					config = of(ref)
					config.Args = []string{"idle"}
				}
				c, err := p.tryCreate(config)
				n.check(err)
				ctx, cancel := context.WithTimeout(t.Context(), after)
				if _, err := n.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: c.id}); err != nil {
					left++
				}
				cancel()
				if !node.Within(node.Patience, func() bool { // the start is being undone
					_, err = n.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id})
					return grpcstatus.Code(err) != codes.FailedPrecondition
				}) {
					t.Errorf("the container cannot be removed: %v", err)
				}
				n.check(err)
				p.stop()
				p.remove()
			}
			t.Logf("%d of 30 starts given up", left)
			if left == 0 {
				t.Error("no start was given up")
			}
			if log := n.DaemonLog(); strings.Contains(log, "outlived their sandbox") {
				t.Errorf("a process began unseen:\n%s", log)
			}
		})
	}
}
