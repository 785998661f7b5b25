package stage

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A node gets the whole entries of all earlier nodes and images, and nothing that is being made.
func TestModulesOfAllNodes(t *testing.T) {
	m, first, second := modules(t.TempDir()), filepath.Join(t.TempDir(), "wasm"), filepath.Join(t.TempDir(), "wasm")
	for _, file := range []string{
		filepath.Join(first, "a-1/entry.json"), filepath.Join(first, "a-1/wazero/code"), filepath.Join(first, "tmp-b-1/entry.json"), filepath.Join(first, "c-1/module.wasm"),
		filepath.Join(m.image("host/d:v1"), "d-1/entry.json"), filepath.Join(string(m), unfinished+"5", "e-1/entry.json"),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what is there stays
		if err := m.takeAll(first); err != nil {
			t.Fatal(err)
		}
		if err := m.giveAll(second); err != nil {
			t.Fatal(err)
		}
	}
	got, err := entries(second)
	if names := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(names, []string{"a-1", "d-1"}) {
		t.Errorf("the node has %q, %v", names, err)
	}
	want := filepath.Join(first, "a-1/wazero/code")
	if text, err := os.ReadFile(filepath.Join(second, "a-1/wazero/code")); err != nil || string(text) != want {
		t.Errorf("its file says %q, %v", text, err)
	}
	if err := linkEntry(first, second, "f-1"); err != nil { // its node has removed it
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(second), unfinished+"*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
