package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Compiled modules that nothing needs, that are damaged, and what a killed compilation left are
// found, and a repair removes them; those of images and of containers whose image has gone stay.
func TestCheckOfCompiledModules(t *testing.T) {
	m := start(t)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m.PullAndCompile(world.Guest, "")
	p := m.run("wasm")
	alive := p.begin(containerConfig(world.Guest, "idle"))
	alive.says("idle")
	cache := filepath.Join(m.Root, "wasm")
	entries, err := filepath.Glob(filepath.Join(cache, "[0-9a-f]*-*"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("the cache has %q, %v", entries, err)
	}
	entry := entries[0]
	_, engine, _ := strings.Cut(filepath.Base(entry), "-")
	long := time.Now().Add(-48 * time.Hour)
	do(os.Chtimes(entry, long, long)) // a guest that runs for long, and whose image goes
	if _, err := m.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: world.Guest}}); err != nil {
		t.Fatal(err)
	}
	m.expectSound("with the image gone and its container running")

	const old, young, cut = "0123456789abcdef", "fedcba9876543210", "0011223344556677"
	for digest, used := range map[string]time.Time{old: long, young: time.Now().Add(-time.Hour)} {
		dir := filepath.Join(cache, strings.Repeat(digest, 4)+"-000000000000")
		do(os.Mkdir(dir, 0o755))
		do(os.WriteFile(filepath.Join(dir, "module.wasm"), make([]byte, 4321), 0o644))
		do(os.Chtimes(dir, used, used))
	}
	torn := filepath.Join(cache, strings.Repeat(young, 4)+"-"+engine)
	do(os.Mkdir(torn, 0o755))
	left := filepath.Join(cache, "tmp-"+strings.Repeat(cut, 4)+"-1234")
	do(os.MkdirAll(filepath.Join(left, "out"), 0o700))

	stray := "compiled module sha256:" + strings.Repeat(old, 4) + ": no image and no container needs its 4321 bytes"
	expect := func(when string) {
		t.Helper()
		code, out := m.check()
		for _, want := range []string{stray, "compiled module sha256:" + strings.Repeat(young, 4) + ": it is damaged", "folder " + left, "3 findings"} {
			if code != 1 || !strings.Contains(out, want) {
				t.Errorf("%s: the check ends with %d and does not say %q:\n%s", when, code, want, out)
			}
		}
	}
	expect("with the server")
	do(m.SignalDaemon(syscall.SIGKILL))
	expect("without the server")
	if code, out := m.check("--repair"); code != 0 || strings.Count(out, "repaired: ") != 3 {
		t.Errorf("repair ends with %d:\n%s", code, out)
	}
	m.expectSound("after the repair")
	for path, stays := range map[string]bool{entry: true, torn: false, left: false} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v; should it be there: %v", path, err, stays)
		}
	}
	do(m.StartDaemon(t.Context()))
	if got := alive.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the guest is %v", got)
	}
	m.expectSound("with the server started again")
}
