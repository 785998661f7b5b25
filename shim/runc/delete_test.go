package runc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/shim/runc"
)

// recorder is runc, and writes down how it is asked to delete. It refuses plain deletes if there is
// a file refuse; if there is a file forget, it forgets the container then, and leaves its cgroup.
type recorder struct{ binary, log, refuse, forget string }

func newRecorder(t *testing.T) recorder {
	t.Helper()
	dir := t.TempDir()
	r := recorder{binary: filepath.Join(dir, "runtime"), log: filepath.Join(dir, "deletes"), refuse: filepath.Join(dir, "refuse"), forget: filepath.Join(dir, "forget")}
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in *" delete "*)
	forced=plain
	case " $* " in *" --force "*) forced=forced ;; esac
	echo $forced >> %[1]s
	if [ $forced = plain ] && [ -e %[2]s ]; then echo refused >&2; exit 1; fi
	if [ $forced = plain ] && [ -e %[3]s ]; then
		while [ "$1" != --root ]; do shift; done
		rm -r "$2"/*
		echo "unable to remove container's cgroup: device or resource busy" >&2; exit 1
	fi ;;
esac
exec runc "$@"
`, r.log, r.refuse, r.forget)
	if err := os.WriteFile(r.binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// deletes are those since the last question.
func (r recorder) deletes(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.log); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

// sleeper creates and starts a container that only ends when it is killed.
func sleeper(t *testing.T, engine *runc.Engine, root, id string) (shim.Container, string) {
	t.Helper()
	b := enginetest.BusyboxBundle(root)(t, id, enginetest.Program{Kind: enginetest.Sleep})
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c, err := engine.Create(t.Context(), b, shim.IO{Stdin: null, Stdout: null, Stderr: null}, shim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Init().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, b.Path
}

func kill(t *testing.T, c shim.Container) {
	t.Helper()
	if err := c.Init().Signal(t.Context(), syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	<-c.Init().Exited()
}

// TestDeleteForcesOnlyWhatRuns is about time: runc 1.2 and later wait 100 ms in each forced delete
// of a container.
func TestDeleteForcesOnlyWhatRuns(t *testing.T) {
	enginetest.NeedRoot(t)
	t.Cleanup(enginetest.RemoveCgroupParent)
	root := enginetest.BusyboxRoot(t)
	for _, tt := range []struct {
		name           string
		refuses, ended bool
		want           string
	}{
		{"has exited", false, true, "plain"},
		{"has exited, which the runtime denies", true, true, "plain forced"},
		{"runs", false, false, "forced"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRecorder(t)
			engine, _ := newEngine(t, r.binary)
			if tt.refuses {
				if err := os.WriteFile(r.refuse, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, _ := sleeper(t, engine, root, enginetest.NewID())
			if tt.ended {
				kill(t, c)
			}
			if err := c.Delete(t.Context()); err != nil {
				t.Error(err)
			}
			if got := r.deletes(t); got != tt.want {
				t.Errorf("deletes: %s, want %s", got, tt.want)
			}
		})
	}
}

// TestDeleteLeavesNoCgroup has a runtime that forgets a container and leaves its cgroup, as runc
// does when that was busy.
func TestDeleteLeavesNoCgroup(t *testing.T) {
	enginetest.NeedRoot(t)
	t.Cleanup(enginetest.RemoveCgroupParent)
	r, id := newRecorder(t), enginetest.NewID()
	if err := os.WriteFile(r.forget, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	engine, _ := newEngine(t, r.binary)
	before := enginetest.Before(t, t.TempDir(), id)
	c, _ := sleeper(t, engine, enginetest.BusyboxRoot(t), id)
	kill(t, c)
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if got := r.deletes(t); got != "plain forced" {
		t.Errorf("deletes: %s", got)
	}
	before.Check(t)
}

// TestDeleteAfterADeadShim deletes with what the bundle tells.
func TestDeleteAfterADeadShim(t *testing.T) {
	enginetest.NeedRoot(t)
	t.Cleanup(enginetest.RemoveCgroupParent)
	root := enginetest.BusyboxRoot(t)
	for _, tt := range []struct {
		name   string
		ended  bool
		record bool
		want   string
	}{
		{"exit on record", true, true, "plain"},
		{"its process is gone", true, false, "plain"},
		{"runs", false, false, "forced"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRecorder(t)
			engine, state := newEngine(t, r.binary)
			id := enginetest.NewID()
			c, dir := sleeper(t, engine, root, id)
			if tt.ended {
				kill(t, c)
			}
			if tt.record {
				if err := bundle.WriteExit(dir, c.Init().Exit()); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // it is idempotent
				if err := runc.Delete(t.Context(), dir, id, bundle.Task{Engine: "runc", Binary: r.binary, Root: state}); err != nil {
					t.Error(err)
				}
			}
			if got := r.deletes(t); got != tt.want {
				t.Errorf("deletes: %s, want %s", got, tt.want)
			}
		})
	}
}

// TestDeleteEndsWhatOutlivesInit: without a PID namespace of its own, a container's processes do
// not end with its first.
func TestDeleteEndsWhatOutlivesInit(t *testing.T) {
	enginetest.NeedRoot(t)
	t.Cleanup(enginetest.RemoveCgroupParent)
	engine, _ := newEngine(t, "runc")
	id := enginetest.NewID()
	b := enginetest.BusyboxBundle(enginetest.BusyboxRoot(t))(t, id, enginetest.Program{})
	b.Spec.Process.Args = []string{"/bin/sh", "-c", "sleep 1000000 & exit 0"}
	b.Spec.Linux.Namespaces = b.Spec.Linux.Namespaces[1:]
	if b.Spec.Linux.Namespaces[0].Type == specs.PIDNamespace {
		t.Fatal("the container has a PID namespace")
	}
	b.Path = enginetest.WriteBundle(t, t.TempDir(), id, b.Spec)
	before := enginetest.Before(t, b.Path, id)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c, err := engine.Create(t.Context(), b, shim.IO{Stdin: null, Stdout: null, Stderr: null}, shim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Init().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-c.Init().Exited()
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	before.Check(t)
}
