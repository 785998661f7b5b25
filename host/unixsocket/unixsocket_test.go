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
		if live, err := RemoveDead(t.Context(), path); !live || err != nil {
			t.Errorf("remove a socket with a listener: %v, %v", live, err)
		}
		l.Close()
		if _, err := Dial(t.Context(), path); err == nil {
			t.Error("nobody listens, but somebody answers")
		}
		for range 2 { // the second time it is missing
			if live, err := RemoveDead(t.Context(), path); live || err != nil {
				t.Errorf("remove a dead socket: %v, %v", live, err)
			}
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the dead socket is still there: %v", err)
		}
	}
}
