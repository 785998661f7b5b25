// Package logind holds a shutdown of the machine back until work is done: the delay inhibitors of
// systemd-logind (org.freedesktop.login1, systemd's "Inhibitor Locks").
package logind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/godbus/dbus/v5"

	"github.com/sunaba-project/sunaba/host/durable"
)

const (
	service = "org.freedesktop.login1"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	manager = service + ".Manager"
	signal  = "PrepareForShutdown"

	// callTime ends a call that is not answered.
	callTime = 10 * time.Second
)

// Conn is a connection to logind. Its methods may be called at the same time.
type Conn struct {
	bus     *dbus.Conn
	signals chan *dbus.Signal
}

// Connect connects to logind on the system bus. The caller closes the connection, which ends with
// the context too.
//
// # Errors
//
// ErrNotFound if the machine has no system bus or no logind on it.
func Connect(ctx context.Context) (*Conn, error) {
	bus, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("connect to logind: %w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to logind: %w", err)
	}
	c := &Conn{bus, make(chan *dbus.Signal, 16)}
	bus.Signal(c.signals)
	match := []dbus.MatchOption{dbus.WithMatchInterface(manager), dbus.WithMatchMember(signal), dbus.WithMatchObjectPath(object)}
	if err := bus.AddMatchSignalContext(ctx, match...); err != nil {
		return nil, errors.Join(fmt.Errorf("follow shutdowns: %w", err), c.Close())
	}
	if _, err := c.ShuttingDown(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the connection. Locks stay.
func (c *Conn) Close() error { return c.bus.Close() }

// ShuttingDown says whether the machine is being shut down now.
func (c *Conn) ShuttingDown(ctx context.Context) (bool, error) {
	return property[bool](ctx, c, "PreparingForShutdown")
}

// MaxDelay is how long locks hold a shutdown back at most, as InhibitDelayMaxSec of
// logind.conf(5) says.
func (c *Conn) MaxDelay(ctx context.Context) (time.Duration, error) {
	micros, err := property[uint64](ctx, c, "InhibitDelayMaxUSec")
	const most = uint64(1<<63-1) / uint64(time.Microsecond)
	return time.Duration(min(micros, most)) * time.Microsecond, err
}

// property reads a property of logind.
func property[T any](ctx context.Context, c *Conn, name string) (v T, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	call := c.bus.Object(service, object).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name)
	if err := call.Store(&v); err != nil {
		return v, fmt.Errorf("read %s of logind: %w", name, classed(err))
	}
	return v, nil
}

// classed gives the errors of D-Bus that somebody asks for their class.
func classed(err error) error {
	var e dbus.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Name {
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
		return fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	}
	return err
}

// Inhibit takes a lock that holds shutdowns back, for MaxDelay at most, until it is closed or the
// process ends. who and why are shown by systemd-inhibit(1).
func (c *Conn) Inhibit(ctx context.Context, who, why string) (io.Closer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var fd dbus.UnixFD
	call := c.bus.Object(service, object).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", who, why, "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("hold shutdowns back: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}

// Next waits for logind to tell that the machine shuts down (true), or does not after all (false).
//
// # Errors
//
// ErrUnavailable if the connection ended; the context's.
func (c *Conn) Next(ctx context.Context) (bool, error) {
	for {
		select {
		case s, open := <-c.signals:
			if !open {
				return false, fmt.Errorf("follow shutdowns: the connection to the system bus ended: %w", errdefs.ErrUnavailable)
			}
			if down, ok := value(s); ok {
				return down, nil
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func value(s *dbus.Signal) (down, ok bool) {
	if s == nil || s.Name != manager+"."+signal || len(s.Body) != 1 {
		return false, false
	}
	down, ok = s.Body[0].(bool)
	return down, ok
}

// DropIns is the folder of logind's drop-in files, DropIn the name of ours.
const (
	DropIns = "/etc/systemd/logind.conf.d"
	DropIn  = "99-sunaba.conf"
)

// WriteMaxDelay writes the drop-in file that raises MaxDelay, in whole seconds, into a folder,
// which is made. It holds after Reload.
func WriteMaxDelay(dir string, d time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raise InhibitDelayMaxSec: %w", err)
	}
	text := fmt.Sprintf("# Written by sunaba, for [pods] shutdown_grace of its configuration.\n[Login]\nInhibitDelayMaxSec=%d\n",
		(d+time.Second-1)/time.Second)
	if err := durable.Write(filepath.Join(dir, DropIn), []byte(text), 0o644); err != nil {
		return fmt.Errorf("raise InhibitDelayMaxSec: %w", err)
	}
	return nil
}

// Reload has logind read its configuration again. logind does not say when it has.
func (c *Conn) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := c.bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", int32(syscall.SIGHUP)).Err
	if err != nil {
		return fmt.Errorf("reload configuration of logind: %w", err)
	}
	return nil
}
