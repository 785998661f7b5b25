package shim

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/bundle"
)

// early is an engine that makes containers ahead.
type early struct {
	fake
	made   []*fakeContainer
	making func(context.Context) error // what creation waits for; may be nil
}

func (e *early) Prepare(context.Context, Preparation) error { return nil }
func (e *early) Unprepare(context.Context, string) error    { return nil }
func (e *early) Vacate(string)                              {}
func (e *early) Close() error                               { return nil }

func (e *early) Create(ctx context.Context, b *Bundle, io IO, o Options) (Container, error) {
	if e.making != nil {
		if err := e.making(ctx); err != nil {
			return nil, err
		}
	}
	c, err := e.fake.Create(ctx, b, io, o)
	if err == nil {
		e.made = append(e.made, c.(*fakeContainer))
	}
	return c, err
}

func newEarly() *early { return &early{fake: fake{name: "early", handles: true}} }

// gone says whether a container was ended and removed.
func (c *fakeContainer) gone() bool {
	select {
	case <-c.exited:
		return c.deletes > 0
	default:
		return false
	}
}

func mustBeBare(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the bundle: %v, %v", entries, err)
	}
}

func TestExpectedContainerIsTaken(t *testing.T) {
	engine := newEarly()
	tasks, events := newService(engine)
	r := &task.CreateTaskRequest{ID: "x", Bundle: newBundle(t, nil)}
	if _, err := tasks.expect(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.state(t.Context(), &task.StateRequest{ID: "x"}); !errdefs.IsNotFound(err) {
		t.Errorf("state of a container that nobody asked for: %v, want not found", err)
	}
	if len(events.topics) > 0 {
		t.Errorf("events %q", events.topics)
	}
	if _, err := tasks.launch(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if engine.created != 1 || engine.made[0].gone() {
		t.Errorf("%d made, the first one gone: %v", engine.created, engine.made[0].gone())
	}
	if want := []string{"/tasks/create", "/tasks/start"}; !slices.Equal(events.topics, want) {
		t.Errorf("events %q, want %q", events.topics, want)
	}
	if _, err := tasks.expect(t.Context(), r); !errdefs.IsAlreadyExists(err) {
		t.Errorf("expect what is there: %v, want already exists", err)
	}
}

func TestExpectedContainerThatIsNotWantedGoes(t *testing.T) {
	change := func(t *testing.T, dir string) {
		config, err := bundle.ReadConfig(dir)
		if err == nil {
			err = os.WriteFile(dir+"/"+bundle.ConfigName, append(config, '\n'), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		then func(*testing.T, taskAPI, *early, string)
		made int
	}{
		"other request": {func(t *testing.T, a taskAPI, _ *early, dir string) {
			if _, err := a.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir, Stdin: "attachable:"}); err == nil {
				t.Log("created") // whether that stdin can be is not what matters here
			}
		}, 2},
		"other specification": {func(t *testing.T, a taskAPI, _ *early, dir string) {
			change(t, dir)
			if _, err := a.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
				t.Error(err)
			}
		}, 2},
		"it has ended": {func(t *testing.T, a taskAPI, e *early, dir string) {
			_ = e.made[0].Signal(t.Context(), sigKill, false)
			if _, err := a.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
				t.Error(err)
			}
		}, 2},
		"expected again": {func(t *testing.T, a taskAPI, _ *early, dir string) {
			if _, err := a.expect(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
				t.Error(err)
			}
		}, 2},
		"deleted": {func(t *testing.T, a taskAPI, _ *early, dir string) {
			if _, err := a.delete(t.Context(), &task.DeleteRequest{ID: "x"}); !errdefs.IsNotFound(err) {
				t.Errorf("delete: %v, want not found", err)
			}
			mustBeBare(t, dir)
		}, 1},
		"shut down": {func(t *testing.T, a taskAPI, _ *early, dir string) {
			if _, err := a.shutdown(t.Context(), &task.ShutdownRequest{}); err != nil {
				t.Error(err)
			}
			mustBeBare(t, dir)
			if _, err := a.expect(t.Context(), &task.CreateTaskRequest{ID: "y", Bundle: dir}); !errdefs.IsUnavailable(err) {
				t.Errorf("expect of a shim that ends: %v, want unavailable", err)
			}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			engine := newEarly()
			tasks, _ := newService(engine)
			dir := newBundle(t, nil)
			if _, err := tasks.expect(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
				t.Fatal(err)
			}
			c.then(t, tasks, engine, dir)
			if !engine.made[0].gone() {
				t.Error("it is still there")
			}
			if len(engine.made) > c.made {
				t.Errorf("%d made, want at most %d", len(engine.made), c.made)
			}
		})
	}
}

func TestExpectedContainerGoesWithTime(t *testing.T) {
	dir := newBundle(t, nil)
	synctest.Test(t, func(t *testing.T) {
		engine := newEarly()
		tasks, _ := newService(engine)
		if _, err := tasks.expect(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
			t.Fatal(err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) == 1 {
			t.Error("no record for who has to clean up after a dead shim")
		}
		<-engine.made[0].exited // the clock of this test runs only while all wait
		synctest.Wait()
		mustBeBare(t, dir)
		if _, err := tasks.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil || engine.created != 2 {
			t.Errorf("create: %v, %d made", err, engine.created)
		}
		if _, err := tasks.delete(t.Context(), &task.DeleteRequest{ID: "x"}); err != nil {
			t.Error(err)
		}
	})
}

// What is being made ahead is waited for by who asks for it, and given up for who takes it back.
func TestExpectationUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*testing.T, taskAPI, *task.CreateTaskRequest, chan<- struct{})
		made int
	}{
		"asked for": {func(t *testing.T, a taskAPI, r *task.CreateTaskRequest, go_ chan<- struct{}) {
			done := make(chan error)
			go func() {
				_, err := a.create(t.Context(), r)
				done <- err
			}()
			synctest.Wait()
			close(go_)
			if err := <-done; err != nil {
				t.Error(err)
			}
			if _, err := a.delete(t.Context(), &task.DeleteRequest{ID: r.ID}); err != nil {
				t.Error(err)
			}
		}, 1},
		"deleted": {func(t *testing.T, a taskAPI, r *task.CreateTaskRequest, _ chan<- struct{}) {
			if _, err := a.delete(t.Context(), &task.DeleteRequest{ID: r.ID}); !errdefs.IsNotFound(err) {
				t.Errorf("delete: %v, want not found", err)
			}
		}, 0},
		"shut down": {func(t *testing.T, a taskAPI, r *task.CreateTaskRequest, _ chan<- struct{}) {
			if _, err := a.shutdown(t.Context(), &task.ShutdownRequest{}); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newBundle(t, nil)
			synctest.Test(t, func(t *testing.T) {
				engine := newEarly()
				proceed, ended := make(chan struct{}), false
				engine.making = func(ctx context.Context) error {
					select {
					case <-proceed:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				tasks := taskAPI{NewService(ServiceOptions{Namespace: "n", Engines: []Engine{engine}, Logger: slog.New(slog.DiscardHandler), Done: func() { ended = true }})}
				r := &task.CreateTaskRequest{ID: "x", Bundle: dir}
				hoped := make(chan error)
				go func() {
					_, err := tasks.expect(t.Context(), r)
					hoped <- err
				}()
				synctest.Wait()
				go func() { c.then(t, tasks, r, proceed); hoped <- nil }()
				first, second := <-hoped, <-hoped
				if (first == nil && second == nil) != (c.made > 0) {
					t.Errorf("expect: %v, %v", first, second)
				}
				if engine.created != c.made {
					t.Errorf("%d made, want %d", engine.created, c.made)
				}
				if ended != (name == "shut down") {
					t.Errorf("the shim ends: %v", ended)
				}
				mustBeBare(t, dir)
			})
		})
	}
}

func TestExpectIsOnlyForEnginesThatMakeAhead(t *testing.T) {
	engine := &fake{name: "late", handles: true}
	tasks, _ := newService(engine)
	dir := newBundle(t, nil)
	if _, err := tasks.expect(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); !errdefs.IsNotImplemented(err) {
		t.Errorf("expect: %v, want not implemented", err)
	}
	if engine.created != 0 {
		t.Error("it was made")
	}
	mustBeBare(t, dir)
	config := `{"process":{"args":["x"],"cwd":"/","user":{}},"mounts":[{"destination":"/v","source":"/v","uidMappings":[{"hostID":1,"size":1}]}]}`
	mapped := newBundle(t, nil)
	if err := os.WriteFile(mapped+"/"+bundle.ConfigName, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	early := newEarly()
	others, _ := newService(early)
	if _, err := others.expect(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: mapped}); !errdefs.IsNotImplemented(err) || early.created != 0 {
		t.Errorf("expect with mapped volumes: %v, want not implemented", err)
	}
	mustBeBare(t, mapped)
	if _, err := tasks.expect(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir, Checkpoint: dir}); !errdefs.IsNotImplemented(err) {
		t.Errorf("expect from a checkpoint: %v, want not implemented", err)
	}
}

// The creation that a launch begins with ends when the container is deleted: who gave it up does not wait for its end.
func TestDeleteEndsALaunch(t *testing.T) {
	dir := newBundle(t, nil)
	synctest.Test(t, func(t *testing.T) {
		engine := newEarly()
		engine.making = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		tasks, _ := newService(engine)
		launched := make(chan error)
		go func() {
			_, err := tasks.launch(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir})
			launched <- err
		}()
		synctest.Wait()
		if _, err := tasks.delete(t.Context(), &task.DeleteRequest{ID: "x"}); !errdefs.IsNotFound(err) {
			t.Errorf("delete: %v, want not found", err)
		}
		if err := <-launched; !errors.Is(err, context.Canceled) {
			t.Errorf("launch: %v, want that it was cancelled", err)
		}
		mustBeBare(t, dir)
	})
}
