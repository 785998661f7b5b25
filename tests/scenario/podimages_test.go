package scenario

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
	"github.com/sunaba-project/sunaba/tests/stage"
)

// percentOf is how much of a disk is used.
func percentOf(t *testing.T, disk string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	return 100 - int64(st.Bavail)*st.Bsize*100/(int64(st.Blocks)*st.Bsize)
}

// GC1, IM13: on a disk that is too full, images that nothing needs are removed until it is not; the
// pinned one, that of a container and that of a manifest stay, and a killed server starts over.
func TestUnusedImagesAreRemoved(t *testing.T) {
	const high, low, size = 55, 45, 20 << 20
	small := disk.New(t, world.Folder, 256)
	dir := filepath.Join(small, "node")
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("[images]\npinned = [\"*/pinned:v1\"]\n[pods]\nmanifests = [%q]\nlogs = %q\n"+
		"[pods.images]\nhigh_percent = %d\nlow_percent = %d\nmin_age = \"0s\"\n", manifests, filepath.Join(dir, "pod-logs"), high, low)
	m := startWith(t, dir, config+stage.Handlers)
	names := map[string]string{} // by reference
	for _, name := range []string{"pinned", "running", "named", "unused-a", "unused-b", "unused-c"} {
		noise := make([]byte, size)
		if _, err := io.ReadFull(rand.Reader, noise); err != nil {
			t.Fatal(err)
		}
		image, err := oci.Busybox(oci.Host(), v1.Config{}, oci.Text("noise", string(noise)))
		if err != nil {
			t.Fatal(err)
		}
		ref, err := world.Registry.Push(t.Context(), name+":v1", image)
		if err != nil {
			t.Fatal(err)
		}
		m.pull(ref)
		names[ref] = name
		switch name {
		case "running":
			program := containerConfig(ref)
			program.Command = []string{"/bin/sleep", "1000"}
			m.run("runc").begin(program)
		case "named":
			waits := "apiVersion: v1\nkind: Pod\nmetadata: {name: waits}\nspec:\n  schedulingGates: [{name: example.com/wait}]\n  containers: [{name: app, image: '" + ref + "'}]\n"
			if err := os.WriteFile(filepath.Join(manifests, "waits.yaml"), []byte(waits), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() []string {
		t.Helper()
		list, err := m.ListImages(t.Context(), &runtime.ListImagesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, i := range list.GetImages() {
			for _, tag := range i.GetRepoTags() {
				found = append(found, names[tag])
			}
		}
		slices.Sort(found)
		return found
	}
	if got := left(); len(got) != len(names) {
		t.Fatalf("%q are there of %v", got, names)
	}
	unix.Sync()
	if used := percentOf(t, small); used < high {
		t.Fatalf("the disk is only %d %% full", used)
	}
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil { // images are looked at when it starts
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !node.Within(node.Patience, func() bool { return percentOf(t, small) <= low }) {
		t.Errorf("the disk is %d %% full, %q are left\n%s", percentOf(t, small), left(), m.DaemonLog())
	}
	got := left()
	if len(got) < 4 || len(got) == len(names) || !slices.Equal(got[:2], []string{"named", "pinned"}) || got[2] != "running" || !strings.HasPrefix(got[3], "unused") {
		t.Errorf("%q are left; want those in need, and of the others one at least", got)
	}
	if used := percentOf(t, small) + size*100/(256<<20); used <= low {
		t.Errorf("one more could have stayed: %d %% with it", used)
	}
	m.expectSound("after images were removed")
	if err := os.Remove(filepath.Join(manifests, "waits.yaml")); err != nil {
		t.Fatal(err)
	}
}
