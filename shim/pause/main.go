package pause

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/memory"
)

// nobody is the user and group of a pause process, as no other process has them.
const nobody = 65535

// lifelineFD is the descriptor that says by the byte letGo that the process is where it belongs,
// and by its end that the shim has exited. A signal at the parent's death would not do: that is the
// death of the thread that forked.
const (
	lifelineFD = 3
	letGo      = 'g'
)

// Main is the pause face: it gives up every privilege, reaps orphans, and ends on TERM or INT and
// with its shim, whose pod is not ready without it. It returns the process's exit code.
func Main() int {
	ends, orphans := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(ends, unix.SIGTERM, unix.SIGINT)
	signal.Notify(orphans, unix.SIGCHLD)
	// In this mode a descriptor is waited for by the runtime's poller, without a thread of its own.
	if err := unix.SetNonblock(lifelineFD, true); err != nil {
		fmt.Fprintln(os.Stderr, "pause: no shim:", err)
		return 1
	}
	lifeline := os.NewFile(lifelineFD, "lifeline")
	var b [1]byte
	if _, err := lifeline.Read(b[:]); err != nil {
		return 1 // the shim thought better of it
	}
	if err := giveUp(); err != nil {
		fmt.Fprintln(os.Stderr, "pause:", err)
		return 1
	}
	alone := make(chan struct{})
	go func() {
		_, _ = lifeline.Read(b[:]) // there is nothing to come but the end
		close(alone)
	}()
	memory.Tune()
	memory.GiveBack()
	for {
		select {
		case <-alone:
			return 1
		case sig := <-ends:
			return 128 + int(sig.(syscall.Signal))
		case <-orphans:
			reapOrphans()
		}
	}
}

func reapOrphans() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err != unix.EINTR && pid <= 0 {
			return
		}
	}
}

// giveUp drops capabilities, user and group on every thread, for good.
func giveUp() error {
	all := func(what string, call, a, b, c uintptr) error {
		if _, _, errno := syscall.AllThreadsSyscall(call, a, b, c); errno != 0 {
			return fmt.Errorf("%s: %w", what, errno)
		}
		return nil
	}
	if err := all("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || has == 0 {
			continue // unknown to this kernel, or gone
		}
		if err := all("drop capability", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("drop groups: %w", err)
	}
	if err := syscall.Setresgid(nobody, nobody, nobody); err != nil {
		return fmt.Errorf("change group: %w", err)
	}
	if err := syscall.Setresuid(nobody, nobody, nobody); err != nil {
		return fmt.Errorf("change user: %w", err)
	}
	return nil
}
