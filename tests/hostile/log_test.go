package hostile

import (
	"errors"
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
	outside := filepath.Join(t.TempDir(), "outside")
	for _, handler := range []string{"runc", "wasm"} {
		p := n.run(handler)
		for name, there := range map[string]struct {
			made func(log string) error
			code codes.Code
		}{
			"a pipe":   {func(log string) error { return unix.Mkfifo(log, 0o600) }, codes.InvalidArgument},
			"a folder": {func(log string) error { return os.Mkdir(log, 0o700) }, codes.InvalidArgument},
			"a link":   {func(log string) error { return os.Symlink(outside, log) }, codes.InvalidArgument},
			"a file as the folder": {func(log string) error {
				folder := filepath.Dir(log)
				return errors.Join(os.Remove(folder), os.WriteFile(folder, nil, 0o600))
			}, codes.FailedPrecondition},
		} {
			config := idle(handler)
			c, err := p.tryCreate(config)
			p.check(err)
			log := filepath.Join(p.config.GetLogDirectory(), config.GetLogPath())
			p.check(there.made(log))
			_, err = p.StartContainer(p.within(node.Patience), &runtime.StartContainerRequest{ContainerId: c.id})
			t.Log(handler, name)
			n.refused(err, there.code, filepath.Dir(config.GetLogPath()))
		}
		if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a log was written through a link: %v", err)
		}
		config := idle(handler)
		c := p.start(config)
		log := filepath.Join(p.config.GetLogDirectory(), config.GetLogPath())
		p.check(os.RemoveAll(filepath.Dir(log)))
		_, err := p.ReopenContainerLog(p.within(node.Patience), &runtime.ReopenContainerLogRequest{ContainerId: c.id})
		n.refused(err, codes.FailedPrecondition, "no such file")
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
