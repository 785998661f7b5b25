package retain

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// A pull that is at work on a module keeps it, and one that begins while it departs waits for that.
func TestPullsHoldModules(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	store, err := disk.Open(unpack.Options{Root: t.TempDir(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var departed []string
	modules := NewModules(store.DB, ModuleOptions{Logger: logger, Departed: func(_ context.Context, digest string) error {
		departed = append(departed, digest)
		return nil
	}})
	c := NewCollector(store, modules, false, logger)
	expect := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(departed, want) {
			t.Errorf("departed %s: %q, want %q", when, departed, want)
		}
		departed = nil
	}
	d := digest.FromString("module")
	release, err := modules.Hold(t.Context(), d)
	if err := errors.Join(err, modules.setPrepared(d, true), c.Sweep(t.Context(), 0)); err != nil {
		t.Fatal(err)
	}
	expect("during a pull")
	release()
	done, ok := modules.leave(d)
	if !ok {
		t.Fatal("module cannot leave")
	}
	if _, again := modules.leave(d); again {
		t.Error("a module departs twice")
	}
	held := make(chan error)
	go func() {
		var err error
		release, err = modules.Hold(t.Context(), d)
		held <- err
	}()
	select {
	case err := <-held:
		t.Fatalf("held while it departs: %v", err)
	default:
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := modules.Hold(impatient, d); !errors.Is(err, context.Canceled) {
		t.Errorf("hold without patience: %v", err)
	}
	done()
	if err := <-held; err != nil {
		t.Error(err)
	}
	if !modules.isHeld(d) {
		t.Error("module is not held")
	}
	release()
	if err := c.Sweep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	expect("after the pulls", d.String())
}
