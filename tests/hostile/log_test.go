package hostile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Nor does a log file that is none.
func TestLogThatIsNoFile(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	n.pull(world.guest)
	for _, handler := range []string{"runc", "wasm"} {
		p := n.run(handler)
		config := idle(handler)
		log := filepath.Join(p.config.GetLogDirectory(), config.GetLogPath())
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(log, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := p.tryCreate(config)
		if err == nil {
			_, err = p.StartContainer(p.within(node.Patience), &runtime.StartContainerRequest{ContainerId: c.id})
		}
		n.refused(err, codes.InvalidArgument, config.GetLogPath())
		p.start(idle(handler))
		p.stop()
		p.remove()
	}
}

// idle is a container of either handler that does nothing until it is stopped.
func idle(handler string) *runtime.ContainerConfig {
	if handler != "wasm" {
		return sh("sleep 1000")
	}
	config := of(world.guest)
	config.Args = []string{"idle"}
	return config
}
