package gauges

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// triggers are what the kernel is asked to tell: that some task waited for memory for so many
// microseconds in a time of so many. The second one needs no privilege.
var triggers = []string{"some 50000 500000", "some 150000 2000000"}

// Alarm calls f each time when tasks have to wait for memory, until the context ends, which is no
// error.
//
// # Errors
//
// ErrNotImplemented if the kernel has no pressure stall information; else those of the system.
func (g *Gauges) Alarm(ctx context.Context, f func()) error {
	path := filepath.Join(g.proc, "pressure", "memory")
	stalls, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("follow pressure on memory: the kernel has no %s: %w", path, errdefs.ErrNotImplemented)
	}
	if err != nil {
		return fmt.Errorf("follow pressure on memory: %w", err)
	}
	defer stalls.Close()
	for _, trigger := range triggers {
		if _, err = unix.Write(int(stalls.Fd()), append([]byte(trigger), 0)); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("follow pressure on memory: %w", err)
	}
	ended, stop, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("follow pressure on memory: %w", err)
	}
	defer ended.Close()
	defer context.AfterFunc(ctx, func() { stop.Close() })()
	watched := []unix.PollFd{{Fd: int32(stalls.Fd()), Events: unix.POLLPRI}, {Fd: int32(ended.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if _, err := unix.Poll(watched, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("follow pressure on memory: %w", err)
		}
		switch {
		case watched[1].Revents != 0:
			return nil
		case watched[0].Revents&unix.POLLERR != 0:
			return fmt.Errorf("follow pressure on memory: %s was taken away: %w", path, errdefs.ErrUnavailable)
		case watched[0].Revents&unix.POLLPRI != 0:
			f()
		}
	}
	return nil
}
