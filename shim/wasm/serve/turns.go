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

	mu   sync.Mutex
	next chan struct{} // closed at the next turn, nil while nobody waits for it
}

func newTurns() *turns {
	t := &turns{}
	if fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err == nil { // else nobody waits
		t.event = os.NewFile(uintptr(fd), "turns")
		go t.run()
	}
	return t
}

// wait returns at the next turn, at once without turns.
func (t *turns) wait() {
	t.mu.Lock()
	next := t.next
	if next == nil {
		next = make(chan struct{})
		if _, err := t.event.Write([]byte{0: 1, 7: 0}); err != nil { // a number, whatever the order of bytes
			close(next)
		} else {
			t.next = next
		}
	}
	t.mu.Unlock()
	<-next
}

// run gives turns until the event is closed.
func (t *turns) run() {
	for number := make([]byte, 8); ; {
		_, err := t.event.Read(number)
		t.mu.Lock()
		if t.next != nil {
			close(t.next)
			t.next = nil
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}
