package hostile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// odd makes a folder with files that nothing may read: a pipe that nobody writes to, and one
// without end.
func odd(t *testing.T) (pipe, endless, long string) {
	t.Helper()
	dir := t.TempDir()
	pipe, endless, long = filepath.Join(dir, "pipe"), filepath.Join(dir, "endless"), filepath.Join(dir, "long")
	err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink("/dev/zero", endless), os.WriteFile(long, nil, 0o600), os.Truncate(long, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	return pipe, endless, long
}

// A file that a request names and that is none holds up nothing: the container is refused, and the
// pod works on.
func TestFilesThatAreNone(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	pipe, endless, long := odd(t)
	p := n.run("runc")
	for _, file := range []string{pipe, endless, long, filepath.Dir(pipe)} {
		config := sh("true")
		config.Linux.SecurityContext.Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: file}
		_, err := p.tryCreate(config)
		n.refused(err, codes.InvalidArgument, "seccomp", file)
	}
	config := sh("true")
	config.Devices = []*runtime.Device{{HostPath: pipe, ContainerPath: "/dev/x", Permissions: "rw"}}
	_, err := p.tryCreate(config)
	n.refused(err, codes.InvalidArgument, "devices[0].host_path")
	p.start(sh("sleep 1000"))
	p.stop()
	p.remove()
}
