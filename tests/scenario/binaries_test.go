package scenario

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// One call of a method by a name that the linker does not know has it keep every exported method of
// every type: text/template is the usual one. Nobody calls reflect.Value.Methods, so whether its
// inner function is in the table of functions, which is in a stripped binary too, tells.
func TestTheLinkerDropsMethods(t *testing.T) {
	for name, mebibytes := range map[string]int{"sunaba": 35, "containerd-shim-sunaba-v1": 15} {
		data, err := os.ReadFile(filepath.Join(world.Bin, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte("main.main\x00")) {
			t.Fatalf("%s has no table of functions", name)
		}
		for _, function := range []string{"reflect.Value.Methods.func1\x00", "text/template.(*state).evalField\x00"} {
			if bytes.Contains(data, []byte(function)) {
				t.Errorf("%s has %q: see what links it with go build -ldflags=-dumpdep, by the functions that are <ReflectMethod>", name, function)
			}
		}
		if len(data) > mebibytes<<20 {
			t.Errorf("%s is %d bytes, at most %d MiB are right", name, len(data), mebibytes)
		}
	}
}
