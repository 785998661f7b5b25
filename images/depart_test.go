package images

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/store"
)

// compiled is a cache of compiled modules, as far as the store sees it.
type compiled struct {
	departed []string
	fail     error
	kept     []Prepared
}

// departures makes the service tell of modules that depart.
func (ts *testService) departures() *compiled {
	ts.t.Helper()
	c := &compiled{}
	ts.options.Departed = func(_ context.Context, digest string) error {
		c.departed = append(c.departed, digest)
		return c.fail
	}
	ts.options.Prepared = func(context.Context) ([]Prepared, error) { return slices.Clone(c.kept), nil }
	ts.close()
	ts.open()
	return c
}

// took returns the modules that departed since the last call.
func (c *compiled) took() []string {
	list := c.departed
	c.departed = nil
	slices.Sort(list)
	return list
}

// wasmImages pushes an artifact and an image with the same module, and another image whose module
// is another.
func wasmImages(t *testing.T, r *testRegistry) (shared, other string) {
	t.Helper()
	run := ocispec.ImageConfig{Entrypoint: []string{"/app.wasm"}}
	module := moduleBytes("shared")
	r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, module)
	r.image("app", "v1", "wasip1/wasm", run, gzipLayer(t, file{name: "app.wasm", content: string(module)}))
	r.image("other", "v1", "wasip1/wasm", run, gzipLayer(t, file{name: "app.wasm", content: string(moduleBytes("other"))}))
	return digest.FromBytes(module).String(), digest.FromBytes(moduleBytes("other")).String()
}

func TestModulesDepartWithTheirLastImage(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	c := s.departures()
	shared, other := wasmImages(t, r)
	for _, name := range []string{"/mod:v1", "/app:v1", "/other:v1"} {
		s.mustPull(r.host+name, "wasm")
	}
	remove := func(name string, want ...string) {
		t.Helper()
		if err := s.Remove(t.Context(), r.host+name); err != nil {
			t.Fatal(err)
		}
		equal(t, "departed with "+name, c.took(), want)
	}
	remove("/mod:v1")
	s.close() // what an image brought is on record
	s.open()
	remove("/app:v1", shared)
	remove("/other:v1", other)
	if n := len(s.disk.DB.State().Prepared); n != 0 {
		t.Errorf("%d modules are still on record", n)
	}
	// One that comes again is announced again.
	s.arrived = nil
	s.mustPull(r.host+"/app:v1", "wasm")
	equal(t, "arrived", s.arrived, []string{shared})
}

func TestModulesStayWithContainers(t *testing.T) {
	for _, name := range []string{"/mod:v1", "/app:v1"} {
		r, s := newTestRegistry(t), newTestService(t)
		c := s.departures()
		shared, _ := wasmImages(t, r)
		img := s.mustPull(r.host+name, "wasm")
		if _, err := s.PrepareRootFS(t.Context(), "c", img); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), r.host+name); err != nil {
			t.Fatal(err)
		}
		s.close()
		s.open()
		equal(t, "departed while a container is there", c.took(), nil)
		if err := s.RemoveRootFS(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		equal(t, "departed with the container", c.took(), []string{shared})
	}
}

func TestDeparturesThatFailAreTriedAgain(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	c := s.departures()
	shared, _ := wasmImages(t, r)
	s.mustPull(r.host+"/app:v1", "wasm")
	c.fail = errors.New("disk is read-only")
	if err := s.Remove(t.Context(), r.host+"/app:v1"); err != nil {
		t.Errorf("Remove: %v; the cache is not the image", err)
	}
	equal(t, "departed", c.took(), []string{shared})
	c.fail = nil
	s.close()
	s.open()
	equal(t, "departed at the next start", c.took(), []string{shared})
	s.close()
	s.open()
	equal(t, "departed at the start after it", c.took(), nil)
}

// prepared records that something may be kept for a module, as a pull does.
func (ts *testService) prepared(module digest.Digest) error {
	return ts.disk.DB.Update(func(tx *store.Tx) error { tx.SetPrepared(module, true); return nil })
}

func TestGCKnowsStrayModules(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	c := s.departures()
	shared, _ := wasmImages(t, r)
	s.mustPull(r.host+"/app:v1", "wasm")
	old, young, running := digest.FromString("old"), digest.FromString("young"), digest.FromString("running")
	past := time.Now().Add(-2 * retain.StrayAge)
	c.kept = []Prepared{
		{Digest: digest.Digest(shared), Bytes: 1, Used: past}, {Digest: old, Bytes: 2, Used: past},
		{Digest: young, Bytes: 4, Used: time.Now()}, {Digest: running, Bytes: 8, Used: past, Running: true},
	}
	want := Garbage{Modules: 1, Bytes: 2}
	if g, err := s.GC(t.Context(), true); err != nil || g != want {
		t.Errorf("GC would remove %+v, %v; want %+v", g, err, want)
	}
	equal(t, "departed by looking", c.took(), nil)
	if g, err := s.GC(t.Context(), false); err != nil || g != want {
		t.Errorf("GC removed %+v, %v; want %+v", g, err, want)
	}
	equal(t, "departed", c.took(), []string{old.String()})
}

// What a look from outside takes for stray is what GC does, but for what the process that has the
// store open sees to.
func TestGlanceAtStrayModules(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	s.departures()
	shared, other := wasmImages(t, r)
	img := s.mustPull(r.host+"/app:v1", "wasm")
	old, coming := digest.FromString("old"), digest.FromString("coming")
	past := time.Now().Add(-2 * retain.StrayAge)
	kept := []Prepared{
		{Digest: digest.Digest(shared), Used: past}, {Digest: digest.Digest(other), Used: past, Running: true},
		{Digest: old, Used: past}, {Digest: coming, Used: time.Now()},
	}
	if err := s.prepared(coming); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PrepareRootFS(t.Context(), "c", img); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, opened bool, want ...string) {
		t.Helper()
		sight, err := Glance(s.root)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range sight.Stray(kept, opened) {
			got = append(got, p.Digest.String())
		}
		equal(t, when, got, want)
		equal(t, when+": roots", sight.Keys(), []string{"c"})
	}
	expect("beside the service", true, old.String())
	if err := s.Remove(t.Context(), r.host+"/app:v1"); err != nil {
		t.Fatal(err)
	}
	if err := s.prepared(coming); err != nil { // as a pull does
		t.Fatal(err)
	}
	expect("with only a root left", true, old.String())
	s.close()
	expect("without the service", false, old.String(), coming.String())
	s.open()

	if sight, err := Glance(t.TempDir()); err != nil || len(sight.Keys()) != 0 || len(sight.Stray(kept[2:3], false)) != 1 {
		t.Errorf("a store that has never been: %+v, %v", sight, err)
	}
}
