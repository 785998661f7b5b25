package wasip2

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Instance is the WASI of one instance of a guest's module, which runs on one thread at a time.
// Interrupt, Hears and End may be called from others.
type Instance struct {
	abi    canonical.Instance
	host   *Host
	system *wasi.System
	stdio  [3]*node      // nil before they are opened
	given  []*descriptor // of each of the host's preopens, opened when given is not nil
	seed   *[2]uint64    // insecure-seed's answer, once it was asked for

	// Scratch space, so that calls make no garbage.
	buffers wasi.Buffers
	bytes   []byte
	subs    []wasi.Subscription
}

// NewInstance makes the WASI of an instance, with open files of its own.
//
// # Errors
//
// ErrInvalidArgument for a descriptor of the configuration that is not what it is said to be.
func (h *Host) NewInstance() (*Instance, error) {
	i := h.NewLazyInstance()
	_, err := i.stream(0)
	if err == nil {
		_, err = i.preopens()
	}
	if err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// NewLazyInstance makes the WASI of an instance that opens standard streams and preopens when the
// guest first asks for them, which then fails where NewInstance would. It is for guests that answer
// one request: most of these never ask. Hears does not know of a standard input before.
func (h *Host) NewLazyInstance() *Instance {
	i := &Instance{host: h, system: wasi.New(), buffers: make(wasi.Buffers, 0, 1)}
	i.abi.Owner = i
	return i
}

// stream is a standard stream, by its number.
func (i *Instance) stream(number int) (*node, error) {
	if i.stdio[0] == nil {
		files, _, err := i.system.Stdio(i.host.config.Stdin, i.host.config.Stdout, i.host.config.Stderr)
		if err != nil {
			return nil, err
		}
		for n, f := range files {
			i.stdio[n] = &node{file: f, users: 1}
		}
	}
	return i.stdio[number], nil
}

// preopens are the descriptors of the host's preopens, in their order.
func (i *Instance) preopens() ([]*descriptor, error) {
	if i.given != nil {
		return i.given, nil
	}
	given := make([]*descriptor, 0, len(i.host.config.Preopens))
	for _, p := range i.host.config.Preopens {
		dir, err := i.system.Preopen(p)
		if err != nil {
			for _, d := range given {
				d.Drop()
			}
			return nil, fmt.Errorf("take preopen %q: %w", p.Name, err)
		}
		flags := descriptorRead | descriptorMutate
		if p.ReadOnly {
			flags = descriptorRead
		}
		given = append(given, &descriptor{node: &node{file: &dir.File, users: 1}, flags: flags})
	}
	i.given = given
	return given, nil
}

// Of is the WASI of the instance that a call is one of.
func Of(c *canonical.Call) *Instance { return c.Instance.Owner.(*Instance) }

// ABI is what the canonical ABI knows of the instance.
func (i *Instance) ABI() *canonical.Instance { return &i.abi }

// System is what the instance's operations work on.
func (i *Instance) System() *wasi.System { return i.system }

// Interrupt asks the guest to end: see wasi.System.Interrupt.
func (i *Instance) Interrupt() { i.system.Interrupt() }

// Hears tells whether the guest has a standard input or a listener to notice Interrupt by.
func (i *Instance) Hears() bool { return i.system.Hears() }

// End ends the instance with err, from outside: the call of a host function that it is in, or its
// next one, ends it. A call that waits does so no longer.
func (i *Instance) End(err error) {
	i.abi.End(err)
	i.system.Cancel()
}

// Close releases everything that the instance opened. It must have ended.
func (i *Instance) Close() {
	i.abi.Close()
	for _, d := range i.given {
		d.Drop()
	}
	i.given = nil
	for n, s := range i.stdio {
		if s != nil {
			s.release()
		}
		i.stdio[n] = nil
	}
	i.system.Close()
}

// scratch is room for n bytes of a read, or for maxRead. It is valid until the next call of it.
func (i *Instance) scratch(n uint64) []byte {
	if i.bytes == nil {
		i.bytes = make([]byte, maxRead)
	}
	return i.bytes[:min(n, maxRead)]
}

// node is an open file that several resources share.
type node struct {
	file  *wasi.File
	users int
}

// use counts another resource.
func (n *node) use() *node { n.users++; return n }

// release closes the file behind its last resource.
func (n *node) release() {
	if n.users--; n.users == 0 {
		_ = n.file.Close() // Drop has no result
	}
}

// failed is the error of an operation on the file, which tells that it was one of a connection.
func (n *node) failed(err error) error {
	if _, no := n.file.AsSocket(); err == nil || err == unix.EPIPE || no != nil {
		return err
	}
	return streamFailure{err}
}
