package components_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
)

// BenchmarkLower lowers components of Go (3 MB) and of Python (18 MB).
func BenchmarkLower(b *testing.B) {
	for _, name := range []string{"go", "python"} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), name+".wasm")
			if err := guests[name].make(tools(b), b.Context(), guests[name].file, path); err != nil {
				b.Fatal(err)
			}
			file, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(file)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lower.Lower(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
