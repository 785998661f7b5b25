package main

import (
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/enginetest"
)

// TestHistory counts successors, what they took over, and what they could not.
func TestHistory(t *testing.T) {
	k := newSupervised(t, "")
	tells := func(want client.History) {
		t.Helper()
		if got := must(k.History(within(t)))(t); got != want {
			t.Errorf("history %+v, want %+v", got, want)
		}
	}
	tells(client.History{Shims: 1})
	k.kill(t)
	tells(client.History{Shims: 2})
	runs := k.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	waits := k.container(enginetest.Program{Kind: enginetest.Sleep}).create(t)
	k.kill(t)
	tells(client.History{Shims: 3, Adopted: 2})
	waits.spec.Annotations[annotation.LogLimits] = "none that there are"
	enginetest.WriteBundle(t, k.dir, waits.id, waits.spec)
	k.kill(t)
	tells(client.History{Shims: 4, Adopted: 3, Lost: 1})
	if _, err := k.State(within(t), waits.id, ""); !errdefs.IsNotFound(err) {
		t.Errorf("state of a container that was lost: %v", err)
	}
	k.nothingRunsOf(t, waits, "config.json", "exit.json", "rootfs")
	k.kill(t)
	tells(client.History{Shims: 5, Adopted: 4, Lost: 1})
	k.kills(t, runs, syscall.SIGKILL, 137)
	k.quit(t)
}

func TestShimOfAPodHasNoHistory(t *testing.T) {
	p := startPod(t, "", false)
	if _, err := p.History(within(t)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("history: %v, want that there is none", err)
	}
}
