package wasm

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
	"github.com/sunaba-project/sunaba/shim/wasm/inspect"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// Node is what a module is compiled and run with.
type Node struct {
	Shim  string // binary with the guest and compile faces
	Cache string // of compiled modules
	// OptimizeGo has the functions of Go's modules rewritten.
	OptimizeGo bool
	// Notes gets what is told while a module is compiled; nil = nothing is.
	Notes io.Writer
}

// Check refuses a shim with another engine than this program's: the names of its entries would be
// others.
//
// # Errors
//
// ErrFailedPrecondition.
func (n Node) Check() error {
	own, ok := debug.ReadBuildInfo()
	theirs, err := binfmt.GoModules(n.Shim)
	if err != nil || !ok {
		return nil // stripped of what would tell
	}
	return checkEngines(n.Shim, wazeroversion.In(own), wazeroversion.In(theirs))
}

// checkEngines compares two versions, each "" if it is not told.
func checkEngines(shim, own, theirs string) error {
	if own == "" || theirs == "" || own == theirs {
		return nil
	}
	return fmt.Errorf("shim %q has the engine wazero %s, this program knows %s: install both of one release: %w", shim, theirs, own, errdefs.ErrFailedPrecondition)
}

// Inspect says all that is known of a module. Unless sectionsOnly, what compiling it shows is part
// of that: the node's entry is looked at, and made if there is none.
func (n Node) Inspect(ctx context.Context, m *Module, sectionsOnly bool) (inspect.Report, error) {
	r := inspect.Module(m.Bytes)
	if sectionsOnly || r.Kind != inspect.KindModule {
		return r, nil
	}
	e, err := compile.Open(n.Cache, m.Digest, compile.Without(n.OptimizeGo))
	if err == nil {
		return r, r.Compiled(e, nil)
	}
	e, err = n.ensure(ctx, m)
	return r, r.Compiled(e, err)
}

// ensure compiles a module into the node's cache, and says so while it takes long.
func (n Node) ensure(ctx context.Context, m *Module) (_ compile.Entry, err error) {
	defer tellCompiling(n.Notes, m.Source.Name, int64(len(m.Bytes)), tellTimes())(&err)
	return compile.Ensure(ctx, compile.Options{CacheDir: n.Cache, Self: n.Shim, Skip: compile.Without(n.OptimizeGo)}, m.Path, m.Digest)
}

// Compiled is a module that is in the node's cache.
type Compiled struct {
	Name    string  `json:"name"`
	Digest  string  `json:"digest"`
	Entry   string  `json:"entry"`   // its folder
	Size    int64   `json:"size"`    // of the entry, in bytes
	Present bool    `json:"present"` // it was there already
	Seconds float64 `json:"seconds"` // that compiling took

	Go gowasm.Result `json:"go,omitzero"` // what happened to its functions, if it is one of Go's and that was asked for
}

// Compile makes sure that a module is in the node's cache.
func (n Node) Compile(ctx context.Context, m *Module) (Compiled, error) {
	c := Compiled{Name: m.Source.Name, Digest: m.Digest}
	e, err := compile.Open(n.Cache, m.Digest, compile.Without(n.OptimizeGo))
	if c.Present = err == nil; !c.Present {
		start := time.Now()
		if e, err = n.ensure(ctx, m); err != nil {
			return c, fmt.Errorf("compile %q: %w", m.Source.Name, err)
		}
		c.Seconds = time.Since(start).Seconds()
	}
	c.Entry, c.Go = e.Dir, e.Go
	err = filepath.WalkDir(e.Dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			c.Size += info.Size()
		}
		return err
	})
	return c, err
}

// ShowCompiled says what was compiled.
func ShowCompiled(w io.Writer, all []Compiled, asJSON bool) error {
	if asJSON {
		return output.Encode(w, append([]Compiled{}, all...), output.JSON)
	}
	for _, c := range all {
		did := fmt.Sprintf("compiled in %.2f s", c.Seconds)
		if c.Present {
			did = "was there already"
		}
		if c.Go != (gowasm.Result{}) {
			did += "; rewritten: " + rewriting(c.Go)
		}
		if _, err := fmt.Fprintf(w, "%s  %s  %s in the cache, %s\n", clean(c.Name), c.Digest, units.Bytes(c.Size), did); err != nil {
			return err
		}
	}
	return nil
}
