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

// Kept is what a shim gave its supervisor.
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
	exits   map[int]Exit        // that nobody has asked for yet
	waiting map[int][]chan Exit // for exits that are to come
	gone    bool                // the supervisor is
}

// Open takes the link that the shim was started with, and returns when everything that an earlier
// shim left is known. The file is closed.
//
// # Errors
//
// ErrUnavailable when the supervisor is gone.
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

// Drop has the supervisor close what it holds under a key; with a slash at its end, under all that
// begin with it. There need not be anything.
func (l *Link) Drop(key string) error { return l.say("drop "+key, message{Drop: key}) }

// Watch has the supervisor remember how a child of this process ends, should this process die
// before it has recorded that. It has not been reaped.
func (l *Link) Watch(pid int) error {
	return l.say(fmt.Sprint("watch process ", pid), message{Watch: pid})
}

// Claim is Watch for a process that was an earlier shim's and that this may not have watched. Exit
// gets how it ended, with code Unknown if it is gone and nobody knows.
func (l *Link) Claim(pid int) error {
	return l.say(fmt.Sprint("watch process ", pid), message{Claim: pid})
}

// Report tells the supervisor how a child of this process has ended, before it is reaped: so there
// is no moment at which nobody knows.
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

// say sends a message. ErrUnavailable when the supervisor is gone.
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

// Exit returns a channel that gets how a process that an earlier shim had watched ended, or will
// end, and is closed then. When the supervisor is gone, it is closed without.
func (l *Link) Exit(pid int) <-chan Exit {
	c := make(chan Exit, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.exits[pid]
	switch {
	case known:
		c <- e
		close(c)
	case l.gone:
		close(c)
	default:
		l.waiting[pid] = append(l.waiting[pid], c)
	}
	return c
}

// listen hears of exits until the supervisor or the link is gone.
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
	l.gone = true
	for _, waiting := range l.waiting {
		for _, c := range waiting {
			close(c)
		}
	}
	l.waiting = nil
}

// Close ends the link. What is kept stays kept.
func (l *Link) Close() error { return l.conn.Close() }
