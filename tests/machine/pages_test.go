package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/pages"
)

// The pages for those who begin are true: what they have their reader type is typed, on a machine
// that has nothing of Sunaba, and prints what they show. Each runs on a machine of its own.
func TestPages(t *testing.T) {
	files, err := filepath.Glob("../../docs/start/*.md")
	check(t, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			check(t, err)
			blocks, err := pages.Read(string(text))
			check(t, err)
			begin := time.Now()
			if err := pages.Run(t.Context(), "docs/start/"+filepath.Base(file), blocks, ready(t), 2*node.Patience); err != nil {
				t.Fatalf("%v\n%s", err, journald("sunaba"))
			}
			t.Logf("%d blocks in %.0f s", len(blocks), time.Since(begin).Seconds())
		})
	}
}

// ready is a folder with what a page's reader has: the package, a module, and crictl in PATH.
func ready(t *testing.T) string {
	t.Helper()
	if _, err := try("sunaba", "version"); err == nil {
		t.Fatal("this machine has Sunaba already: a page needs one of its own")
	}
	work, folder := t.TempDir(), t.TempDir()
	check(t, binaries.Provide(filepath.Join(folder, "programs/amd64"), binaries.Sunaba, binaries.Shim))
	first, _ := debs(t, folder)
	check(t, os.Rename(first, filepath.Join(work, filepath.Base(first))))
	run(t, "sh", "-c", "cd ../../examples/greeter && GOOS=wasip1 GOARCH=wasm go build -trimpath -o "+filepath.Join(work, "greeter.wasm"))
	crictl, err := filepath.Abs("../tools/bin")
	check(t, err)
	t.Setenv("PATH", os.Getenv("PATH")+":"+crictl)
	t.Cleanup(func() {
		if said, err := combined("dpkg", "-P", "sunaba"); err != nil {
			t.Errorf("remove the package: %v: %s", err, said)
		}
	})
	return work
}
