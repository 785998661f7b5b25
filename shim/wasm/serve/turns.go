package serve

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// turns lets the connections have their turns. Go's runtime asks the kernel which connections have
// something to read when a thread has nothing else to run, or else every 10 ms. Two connections
// whose next requests are there when their responses are sent could keep two processors that long.
// So each waits before it reads on: for an event that the kernel tells behind the requests of the
// others that have arrived by then.
type turns struct {
	event *os.File // an eventfd, nil = no turns

	next  sync.Cond // the next turn
	asked bool      // it was asked for
}

func newTurns() *turns {
	t := &turns{next: sync.Cond{L: &sync.Mutex{}}}
	if fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err == nil { // without one, no connection waits
		t.event = os.NewFile(uintptr(fd), "turns")
		go t.run()
	}
	return t
}

// wait returns at the next turn, at once without turns.
func (t *turns) wait() {
	t.next.L.Lock()
	defer t.next.L.Unlock()
	if !t.asked {
		_, err := t.event.Write([]byte{0: 1, 7: 0}) // a number, whatever the order of bytes
		t.asked = err == nil
	}
	if t.asked {
		t.next.Wait()
	}
}

// run gives turns until the event is closed.
func (t *turns) run() {
	for number, err := make([]byte, 8), error(nil); err == nil; {
		_, err = t.event.Read(number)
		t.next.L.Lock()
		t.asked = false
		t.next.Broadcast()
		t.next.L.Unlock()
	}
}
