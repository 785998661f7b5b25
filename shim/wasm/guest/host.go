package guest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip3"
	"github.com/sunaba-project/sunaba/shim/wasm/wasmedge"
)

// host is the WASI of the guest.
type host interface {
	Interrupt()
	Hears() bool
}

// openHost makes what the host functions work on, and the functions that the guest imports: a
// module has those of preview 1, a lowered component those of WASI 0.2 and 0.3.
func (p *process) openHost(imports []api.FunctionDefinition) error {
	if p.config.Load.Component {
		return p.openHost2(imports)
	}
	return p.openHost1(imports)
}

// stdin is the descriptor of the standard input, -1 for none.
func (p *process) stdin() int {
	if p.config.NoStdin {
		return -1
	}
	return unix.Stdin
}

func (p *process) openHost1(imports []api.FunctionDefinition) error {
	g := &p.guest
	h, err := wasip1.New(wasip1.Config{
		Args: p.config.Args, Env: p.config.Env, Stdin: p.stdin(), Stdout: unix.Stdout, Stderr: unix.Stderr,
		Preopens: []wasip1.Preopen{{FD: g.root.fd, Name: "/"}},
	})
	if err != nil {
		return fmt.Errorf("make host: %w", err)
	}
	g.host = h
	return h.InstantiateFor(g.ctx, g.runtime, imports, wasmedge.Functions()...)
}

func (p *process) openHost2(imports []api.FunctionDefinition) error {
	g := &p.guest
	h, err := wasip2.New(wasip2.Config{
		Args: p.config.Args, Env: p.config.Env, Stdin: p.stdin(), Stdout: unix.Stdout, Stderr: unix.Stderr,
		Preopens: []wasip2.Preopen{{FD: g.root.fd, Name: "/"}},
	})
	if errdefs.IsInvalidArgument(err) { // a string that is not UTF-8
		return faultf(link.Invalid, "make host: %w", err)
	}
	if err != nil {
		return fmt.Errorf("make host: %w", err)
	}
	wanted := make([]canonical.Import, len(imports))
	for n, f := range imports {
		module, name, _ := f.Import()
		wanted[n] = canonical.ParseImport(module, name)
	}
	if err := canonical.Provide(g.ctx, g.runtime, wanted, wasip2.World(), wasihttp.World(), wasip3.World(), wasihttp.Service(), async.World()); err != nil {
		return faultf(link.Invalid, "%w", err)
	}
	if p.answers() {
		g.http = p.newHTTPGuest(h)
		g.host = g.http
		return nil
	}
	i, err := h.NewInstance()
	if err != nil {
		return fmt.Errorf("make host: %w", err)
	}
	i.ABI().Tasks = async.New(i.System())
	if slices.ContainsFunc(wanted, func(i canonical.Import) bool { return strings.HasPrefix(i.Interface, "wasi:http/") }) {
		i.ABI().Extension = p.client()
	}
	g.host, g.ctx = i, canonical.With(g.ctx, i.ABI())
	return nil
}
