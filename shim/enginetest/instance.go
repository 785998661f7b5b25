package enginetest

import (
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim"
)

// instance is a container in a test.
type instance struct {
	shim.Container
	bundle  *shim.Bundle
	streams *streams
	before  *Snapshot
}

// create makes a container that is deleted, and checked for leftovers, when the test ends.
func create(t *testing.T, h Harness, p Program) *instance {
	t.Helper()
	c, err := tryCreate(t, h, p)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return c
}

func tryCreate(t *testing.T, h Harness, p Program) (*instance, error) {
	t.Helper()
	id := NewID()
	b := h.Bundle(t, id, p)
	handles, err := h.Engine.Handles(within(t), b)
	if err != nil || !handles {
		t.Fatalf("handles: %v, %v", handles, err)
	}
	i := &instance{bundle: b, before: Before(t, b.Path, id)}
	t.Cleanup(func() { i.before.Check(t) })
	var files shim.IO
	i.streams, files = open(t)
	make := h.Engine.Create
	if h.launcher != nil {
		make = h.launcher.Launch
	}
	i.Container, err = make(within(t), b, files, h.Options)
	if err != nil {
		i.streams.handOver()
		return nil, err
	}
	if h.launcher == nil { // else Start needs the child's ends
		i.streams.handOver()
	}
	if there := i.Init().Pid() > 0; there != (h.launcher == nil) {
		t.Errorf("a created container's pid is %d", i.Init().Pid())
	}
	t.Cleanup(func() { i.delete(t) })
	return i, nil
}

// delete ends and deletes the container, twice: the second time must be no error.
func (i *instance) delete(t *testing.T) {
	t.Helper()
	select {
	case <-i.Init().Exited():
	default:
		if i.Init().Pid() == 0 { // its launch did not succeed
			break
		}
		if err := i.Init().Signal(within(t), syscall.SIGKILL, false); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("kill: %v", err)
		}
		wait(t, i.Init())
	}
	for range 2 {
		if err := i.Delete(within(t)); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
}

func (i *instance) start(t *testing.T) {
	t.Helper()
	if err := i.Init().Start(within(t)); err != nil {
		t.Fatalf("start: %v", err)
	}
	i.streams.handOver()
}

// ready waits until a sleeping program has said so.
func (i *instance) ready(t *testing.T) {
	t.Helper()
	i.start(t)
	deadline := time.Now().Add(patience)
	for !i.streams.stdout.has("ready\n") {
		if time.Now().After(deadline) {
			t.Fatal("program is not ready")
		}
		time.Sleep(time.Millisecond)
	}
}
