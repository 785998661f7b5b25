package task

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/message"
)

// slow is an engine whose creations wait.
type slow struct {
	fake
	wait func(context.Context) error
}

func (e *slow) Create(ctx context.Context, b *shim.Bundle, io shim.IO, o shim.Options) (shim.Container, error) {
	if err := e.wait(ctx); err != nil {
		return nil, err
	}
	return e.fake.Create(ctx, b, io, o)
}

func mustBeBare(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the bundle: %v, %v", entries, err)
	}
}

// The creation that a launch begins with ends when the container is deleted: who gave it up does
// not wait for its end.
func TestDeleteEndsALaunch(t *testing.T) {
	dir := newBundle(t, nil)
	synctest.Test(t, func(t *testing.T) {
		engine := &slow{fake{name: "slow", handles: true}, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		tasks, _ := newService(engine)
		launched := make(chan error)
		go func() {
			_, err := tasks.launch(t.Context(), &message.CreateTaskRequest{ID: "x", Bundle: dir})
			launched <- err
		}()
		synctest.Wait()
		if _, err := tasks.delete(t.Context(), &message.ProcessRequest{ID: "x"}); !errdefs.IsNotFound(err) {
			t.Errorf("delete: %v, want not found", err)
		}
		if err := <-launched; !errors.Is(err, context.Canceled) {
			t.Errorf("launch: %v, want that it was cancelled", err)
		}
		mustBeBare(t, dir)
	})
}
