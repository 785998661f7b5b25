package process

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

func TestKill(t *testing.T) {
	cmd := exec.Command("sh", "-c", "trap '' TERM; sleep 1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, ended := cmd.Process.Pid, make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := Kill(t.Context(), pid, func() bool { return false }); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("a process that is not meant has ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := Kill(t.Context(), pid, func() bool { return true }); err != nil {
		t.Error(err)
	}
	<-ended
	if err := Kill(t.Context(), pid, nil); err != nil { // the pid is free
		t.Error(err)
	}
}

func TestKillInTime(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Kill(ctx, cmd.Process.Pid, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
}
