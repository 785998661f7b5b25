package unixsocket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketsWithLongPaths(t *testing.T) {
	for _, name := range []string{"s", strings.Repeat("n", 100)} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "shim.sock")
		l, err := Listen(path, 0o660)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		c, err := Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
		if _, err := Dial(t.Context(), path); err == nil {
			t.Error("nobody listens, but somebody answers")
		}
	}
}
