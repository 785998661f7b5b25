package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Kept is a note with files that a shim gave its supervisor.
type Kept struct {
	Key   string
	Note  []byte
	Files []*os.File // the receiver's own
}

// Link is a shim's side of its supervisor. It is safe for concurrent use.
type Link struct {
	conn *net.UnixConn
	left []Kept
	life int

	mu      sync.Mutex
	exits   map[int]Exit        // not asked for yet
	waiting map[int][]chan Exit // for exits that are to come
	closed  bool                // the supervisor has exited
}

// Open takes the link that the shim was started with, and returns when everything that an earlier
// shim left is known. The file is closed.
//
// # Errors
//
// ErrUnavailable when the supervisor has exited.
func Open(f *os.File) (*Link, error) {
	conn, err := connection(f)
	if err != nil {
		return nil, err
	}
	l := &Link{conn: conn, exits: map[int]Exit{}, waiting: map[int][]chan Exit{}}
	packets := newReceiver(conn)
	for {
		m, err := packets.next()
		if err != nil {
			for _, k := range l.left {
				k.close()
			}
			conn.Close()
			return nil, fmt.Errorf("hear of what is kept: %w: %w", err, errdefs.ErrUnavailable)
		}
		switch {
		case m.Keep != "":
			l.left = append(l.left, kept(m))
		case m.Exit != nil:
			l.exits[m.Exit.PID] = *m.Exit
		case m.Ready:
			l.life = m.Life
			go l.listen(packets)
			return l, nil
		}
	}
}

func kept(m message) Kept {
	k := Kept{Key: m.Keep, Note: m.Note}
	for _, fd := range m.fds {
		k.Files = append(k.Files, os.NewFile(uintptr(fd), m.Keep))
	}
	return k
}

func (k Kept) close() {
	for _, f := range k.Files {
		f.Close()
	}
}

// Life is how many shims the supervisor has started, this one among them.
func (l *Link) Life() int { return l.life }

// Left is what an earlier shim gave the supervisor, sorted by key. It stays with the supervisor
// until Drop.
func (l *Link) Left() []Kept { return l.left }

// Keep has the supervisor hold copies of files, with a note, in place of what it held under this
// key. When it has returned, they outlive this process. At most 32 files and some 40 KiB.
func (l *Link) Keep(key string, note []byte, files ...*os.File) error {
	if len(files) > maxFiles {
		return fmt.Errorf("keep %s: %d files, at most %d fit into a message", key, len(files), maxFiles)
	}
	fds, err := copies(files)
	if err != nil {
		return err
	}
	defer closeAll(fds)
	return l.say("keep "+key, message{Keep: key, Note: note, fds: fds})
}

// Drop has the supervisor close what it holds under a key; a key with a slash at its end stands for
// all that start with it. A missing key is no error.
func (l *Link) Drop(key string) error { return l.say("drop "+key, message{Drop: key}) }

// Watch has the supervisor record the exit of a child of this process, in case this process dies
// before it has recorded it. The child has not been reaped.
func (l *Link) Watch(pid int) error {
	return l.say(fmt.Sprint("watch process ", pid), message{Watch: pid})
}

// Claim is Watch for a process of an earlier shim, which that shim may not have watched. Exit
// reports its exit, with code Unknown if it has exited and the exit was not recorded.
func (l *Link) Claim(pid int) error {
	return l.say(fmt.Sprint("watch process ", pid), message{Claim: pid})
}

// Report tells the supervisor how a child of this process has exited, before it is reaped, so that
// the exit is never known to this process alone.
func (l *Link) Report(e Exit) error {
	return l.say(fmt.Sprint("remember the end of process ", e.PID), message{Exit: &e})
}

// Forget tells the supervisor that the end of a process has been recorded.
func (l *Link) Forget(pid int) error {
	l.mu.Lock()
	delete(l.exits, pid)
	l.mu.Unlock()
	return l.say(fmt.Sprint("forget process ", pid), message{Forget: pid})
}

// say sends a message. ErrUnavailable when the supervisor has exited.
func (l *Link) say(what string, m message) error {
	err := send(l.conn, m)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("ask supervisor to %s: %w", what, err)
	}
	return nil
}

// Exit returns a channel that receives the exit of a process that an earlier shim watched, and is
// closed then. When the supervisor has exited, it is closed without an exit.
func (l *Link) Exit(pid int) <-chan Exit {
	c := make(chan Exit, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.exits[pid]
	switch {
	case known:
		c <- e
		close(c)
	case l.closed:
		close(c)
	default:
		l.waiting[pid] = append(l.waiting[pid], c)
	}
	return c
}

// listen receives exits until the supervisor has exited or the link has ended.
func (l *Link) listen(packets *receiver) {
	for {
		m, err := packets.next()
		if err != nil {
			break
		}
		m.close()
		if m.Exit == nil {
			continue
		}
		l.mu.Lock()
		l.exits[m.Exit.PID] = *m.Exit
		for _, c := range l.waiting[m.Exit.PID] {
			c <- *m.Exit
			close(c)
		}
		delete(l.waiting, m.Exit.PID)
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, waiting := range l.waiting {
		for _, c := range waiting {
			close(c)
		}
	}
	l.waiting = nil
}

// Close closes the link. The supervisor keeps what it holds.
func (l *Link) Close() error { return l.conn.Close() }
