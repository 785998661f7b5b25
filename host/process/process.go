// Package process ends processes that are not children of this one, and waits for their ends.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ExitCode is the exit code, 0 to 255, of a process that stands for a program which ended with
// code: its low eight bits, as the kernel keeps them, or 255 where these would make a success of a
// failure.
func ExitCode(code int) int {
	if code == 0 {
		return 0
	}
	return cmp.Or(code&0xff, 0xff)
}

// Kill kills a process and waits for its end. One that has ended is no error. meant, if given, is
// asked whether it is the one that is meant, when the pid cannot become another's any more; if it
// is not, it is left alone.
//
// # Errors
//
// The context's, if the process does not end in time.
func Kill(ctx context.Context, pid int, meant func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if meant != nil && !meant() {
		return nil
	}
	if err := Signal(fd, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	if err := Wait(ctx, fd); err != nil {
		return fmt.Errorf("wait for process %d: %w", pid, err)
	}
	return nil
}

// Signal sends a signal to the process of a pidfd. One that has ended is no error.
func Signal(pidfd int, sig unix.Signal) error {
	if err := unix.PidfdSendSignal(pidfd, sig, nil, 0); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// poll is how long a wait does not look at its context, in milliseconds.
const poll = 100

// Wait returns when the process of a pidfd has ended. Its parent need not have waited for it. With
// a context that never ends it does not wake in between.
func Wait(ctx context.Context, pidfd int) error {
	timeout := poll
	if ctx.Done() == nil {
		timeout = -1
	}
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, timeout)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
	return ctx.Err()
}
