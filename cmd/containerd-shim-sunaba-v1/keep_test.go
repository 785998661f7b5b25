package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sunaba-project/sunaba/shim/client"
)

// kept is a directory with a keeper and its shim.
type kept struct {
	*pod
	shim int // pid
}

func newKept(t testing.TB, binary string) *kept {
	t.Helper()
	k := &kept{pod: startPod(t, binary, true)}
	k.connect(t)
	return k
}

// connect reaches the shim that there is now.
func (k *kept) connect(t testing.TB) {
	t.Helper()
	old := k.Client
	k.Client = must(client.Connect(within(t), k.dir))(t)
	old.Close()
	k.shim = k.PID()
}

// kill ends the shim and reaches its successor. Nobody is refused meanwhile.
func (k *kept) kill(t testing.TB) {
	t.Helper()
	before := k.shim
	check(t, syscall.Kill(k.shim, syscall.SIGKILL))
	<-k.Done()
	k.connect(t)
	if k.shim == before {
		t.Fatal("the dead shim answers")
	}
}

// quit ends shim and keeper, which have no containers.
func (k *kept) quit(t testing.TB) {
	t.Helper()
	check(t, k.Shutdown(within(t)))
	eventually(t, "shim and keeper end", func() bool { return len(processesIn(t, k.dir)) == 0 })
	if _, err := os.Stat(filepath.Join(k.dir, client.SocketName)); !os.IsNotExist(err) {
		t.Error("the shim left its socket")
	}
}

func TestKeeperStartsASuccessor(t *testing.T) {
	k := newKept(t, "")
	k.kill(t)
	k.kill(t)
	k.quit(t)
}
