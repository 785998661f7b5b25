package guest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// warm does what is the same for all guests, before a container waits for it.
func (p *process) warm() error {
	if err := link.Warm(); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	p.callLists()
	return p.guest.openRuntime("/" + cacheName)
}

// lists are what a guest process is left of the system calls.
type lists struct {
	guest cage.Filter // from before the module is read
	seal  cage.Filter // when it is loaded: no new executable memory
}

func (p *process) callLists() *lists {
	if p.lists == nil {
		p.lists = &lists{
			guest: cage.NewFilter(cage.GuestCalls(), cage.Errno(unix.ENOSYS)),
			seal:  cage.NewFilter(cage.SealCalls(), cage.Allow),
		}
	}
	return p.lists
}
