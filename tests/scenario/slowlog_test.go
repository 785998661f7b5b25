package scenario

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/disk"
)

// A container whose log is on a disk that takes long is said to have ended once all of its lines
// are in the log.
func TestEndWithASlowLog(t *testing.T) {
	slow := disk.New(t, world.Folder, 64)
	m := start(t)
	m.pull(world.Busybox)
	c := m.run("runc", func(config *runtime.PodSandboxConfig) { config.LogDirectory = filepath.Join(slow, "logs") }).begin(
		sh("echo begun; until [ -e /go ]; do usleep 20000; done; seq 9000; exit 7"))
	c.says("begun")
	thaw := disk.Freeze(t, slow)
	if out, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"touch", "/go"}, Timeout: 60}); err != nil || out.GetExitCode() != 0 {
		t.Fatal(out, err)
	}
	time.AfterFunc(6*time.Second, thaw)
	c.expectEnd(7, "Error")
	if got := c.text(); !strings.HasSuffix(got, "\n9000\n") {
		t.Errorf("it has ended, and its log ends with %q", got[max(len(got)-20, 0):])
	}
}
