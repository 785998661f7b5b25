package task

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// execs are the processes of a container beside init, by their ids.
type execs struct {
	mu   sync.Mutex
	byID map[string]*process // nil = the id is reserved
}

func (e *execs) find(id string) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byID[id]
}

// reserve takes an id, until settle; false if it is taken.
func (e *execs) reserve(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, taken := e.byID[id]; taken {
		return false
	}
	if e.byID == nil {
		e.byID = make(map[string]*process)
	}
	e.byID[id] = nil
	return true
}

// settle gives an id to a process, or gives it up if that is nil: the process was not made, or is
// deleted.
func (e *execs) settle(id string, p *process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p == nil {
		delete(e.byID, id)
	} else {
		e.byID[id] = p
	}
}

// ids lists the processes that were not deleted.
func (e *execs) ids() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.byID))
}

// started lists the processes that were started.
func (e *execs) started() []*process {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.byID))
	e.mu.Unlock() // lock order: the process, then this
	return slices.DeleteFunc(all, func(p *process) bool { return p == nil || p.pid() == 0 })
}

// wait waits until the ends of all started processes have been announced, for at most limit.
func (e *execs) wait(limit time.Duration) {
	timeout := time.After(limit)
	for _, p := range e.started() {
		select {
		case <-p.finished:
		case <-timeout:
			return
		}
	}
}

// close closes the streams of all processes, and removes them.
func (e *execs) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, p := range e.byID {
		if p != nil { // nil is a reserved id, whose Exec fails in the engine
			p.streams.Close()
			delete(e.byID, id)
		}
	}
}
