package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A device of the Container Device Interface comes with all that its specification says, asked for
// by field or by annotation; one that no specification has is named.
func TestCDIDevices(t *testing.T) {
	specs, host := t.TempDir(), t.TempDir()
	m := start(t, fmt.Sprintf("[devices]\ncdi_spec_dirs = [%q]", specs))
	m.pull(world.Busybox)
	m.pull(world.Guest)
	if err := os.WriteFile(filepath.Join(host, "library"), []byte("the library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf(`{"cdiVersion": "0.7.0", "kind": "example.org/widget", "devices": [
		{"name": "one", "containerEdits": {"env": ["WIDGET=one"], "additionalGids": [4444],
			"deviceNodes": [{"path": "/dev/widget", "hostPath": "/dev/zero", "permissions": "rw"}],
			"mounts": [{"hostPath": %q, "containerPath": "/usr/lib/widget", "options": ["ro", "bind"]}]}},
		{"name": "two", "containerEdits": {"env": ["TWO=2"]}}]}`, host)
	if err := os.WriteFile(filepath.Join(specs, "widget.json"), []byte(spec), 0o644); err != nil { // the server runs already
		t.Fatal(err)
	}
	for _, handler := range everyHandler { // under wasm the Linux container of the pod has it
		t.Run(handler, func(t *testing.T) {
			p := m.in(t).run(handler)
			config := sh(`echo $WIDGET $TWO; id -G; cat /usr/lib/widget/library; head -c 3 /dev/widget | wc -c`)
			config.CDIDevices = []*runtime.CDIDevice{{Name: "example.org/widget=one"}}
			config.Annotations = map[string]string{"cdi.k8s.io/plugin": "example.org/widget=two"}
			c := p.begin(config)
			c.expectEnd(0, "Completed")
			if got := c.text(); got != "one 2\n0 4444\nthe library\n3\n" {
				t.Errorf("%q", got)
			}
			config = sh("true")
			config.CDIDevices = []*runtime.CDIDevice{{Name: "example.org/widget=three"}}
			if _, err := p.tryCreate(config); grpcstatus.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "example.org/widget=three") {
				t.Errorf("unknown device: %v", err)
			}
		})
	}
	config := containerConfig(world.Guest, "env")
	config.CDIDevices = []*runtime.CDIDevice{{Name: "example.org/widget=two"}}
	if _, err := m.run("wasm").tryCreate(config); grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "guest has no devices") {
		t.Errorf("guest: %v", err)
	}
}
