// Package compile keeps the node's compiled modules: a cache of entries. Each entry is made once,
// in an unprivileged process of its own, and verified whenever it is read.
//
// An entry is a directory CACHE/<module digest>-<engine>, where engine stands for the version of
// wazero, the architecture and the CPU's features. It holds the module as the engine loads it,
// wazero's machine code for it (none where wazero interprets), what the steps took out of the
// module, and entry.json with the size and checksum of every file. An entry appears by one rename,
// is never changed, and is removed by Drop. An entry that does not verify is deleted and made
// again. Processes that want the same entry at the same time wait for the first of them.
//
// Before it is compiled, a module of Go's linker may be rewritten so that its code is smaller and
// faster (package gowasm).
//
// A start is light because three steps (Steps) are taken here once. The data segments become an
// image of the module's memory, which guests map. The functions lose their bodies: wazero finds
// the machine code of the whole module under the name of that frame, which is a few KB to decode
// and validate. And the machine code is in a file of its own, which guests map and link into
// wazero (LinkCode); wazero's cache file has a stub. What is not understood is left as it is. A
// module for which no step can be taken is loaded as it came, without its debug information.
//
// # Notes
//
//   - The second and third step build on the inside of one version of wazero. With any other
//     version they are not taken, nor is a module rewritten (package wazeroversion).
//   - A file from 1 MiB on is checked by its inode, size and times when its entry is read; the
//     engine checks the sum of the machine code while a guest's process loads the rest.
//
// The compile face of the binary is
//
//	compile -cache DIR [-digest D] [-optimize-go] MODULE   make sure that there is an entry, and read it
//	compile -cache DIR -digest D [-optimize-go] -leased [MODULE]   the same, as long as standard input is
//	                                             open; without MODULE only read it
//	compile -cache DIR -drop -digest D           remove the module's entries
//	compile -cache DIR -list                     print what is kept of each module, as JSON
//
// With -memory BYTES, what all compilations may take, garbage is collected before it takes that.
// Its exit code is 0, 65 for a module that is refused (the reason is on standard error), 1 for any
// other error.
package compile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
)

// Options says where the cache is, which binary has the compile face and how children are started.
type Options struct {
	CacheDir string
	Self     string // "" = this process's own binary
	// Start starts a child and returns how to learn its exit code (or 128 + signal). A process
	// whose children are reaped in one place sets it; nil is os/exec's own way.
	Start func(*exec.Cmd) (wait func() int, err error)
	// Skip leaves steps out: entries that are made without them are others.
	Skip Steps
	// Memory is what all compilations may take, in bytes: near it, garbage is collected more often.
	// 0 = no limit.
	Memory uint64

	limits limits // of a child; none = ample
}

// Entry is a compiled module.
type Entry struct {
	Dir           string // directory to hand to the guest process, read-only
	Digest        string // of the module as it came, "sha256:…"
	StartFunction bool   // instantiating the module runs its code
	Size          int64  // bytes of the files in Dir that the guest process keeps in its memory or reads into it
	Load          Load
	Go            gowasm.Result
}

// File names in an entry.
const (
	ModuleName = "module.wasm" // what the guest process loads
	recordName = "entry.json"
)

const sha256Prefix = "sha256:"

// maxModule bounds what is read into memory.
const maxModule = 1 << 30

// Warm initializes what does not depend on the module before the first Ensure.
func Warm() {
	var r record
	_ = json.Unmarshal([]byte(`{"load":{},"files":[{"stamp":{}}]}`), &r) // the decoder learns the types
	_ = entryDir("", sha256Prefix, 0)
	_ = castagnoli()
}

// Ensure returns the entry of the module at path, and compiles the module if the cache has no entry.
// digest, if known, is "sha256:…" of the module: if there is an entry for it the module is not
// read; otherwise it must match.
//
// # Errors
//
// ErrInvalidArgument with a text for a file that is not a core module (a component, for example),
// does not validate or does not have the digest; ErrResourceExhausted when compiling exceeds the
// limits.
func Ensure(ctx context.Context, o Options, path, digest string) (Entry, error) {
	o.Self = cmp.Or(o.Self, "/proc/self/exe")
	if o.Start == nil {
		o.Start = startPlain
	}
	if digest != "" {
		if err := checkDigest(digest); err != nil {
			return Entry{}, err
		}
	}
	module, err := os.Open(path)
	if err != nil {
		return Entry{}, fmt.Errorf("open module: %w", err)
	}
	defer module.Close()
	if digest == "" {
		if digest, err = Digest(module); err != nil {
			return Entry{}, fmt.Errorf("read module %q: %w", path, err)
		}
	}
	if e, err := read(entryDir(o.CacheDir, digest, o.Skip), digest); err == nil {
		markUsed(e.Dir)
		return e, nil
	}
	return o.make(ctx, module, digest)
}

// Open returns the entry of the module with this digest, made without the skipped steps, if it
// exists and is whole.
//
// # Errors
//
// ErrNotFound if it is not.
func Open(cacheDir, digest string, skip Steps) (Entry, error) {
	if err := checkDigest(digest); err != nil {
		return Entry{}, err
	}
	e, err := read(entryDir(cacheDir, digest, skip), digest)
	if err != nil {
		return Entry{}, fmt.Errorf("open entry of module %s: %w: %w", digest, err, errdefs.ErrNotFound)
	}
	return e, nil
}

// make compiles the module under the digest's lock, unless another process has just done so.
func (o Options) make(ctx context.Context, module *os.File, digest string) (Entry, error) {
	if err := checkHeader(module); err != nil {
		return Entry{}, err
	}
	if err := os.MkdirAll(o.CacheDir, 0o755); err != nil {
		return Entry{}, fmt.Errorf("make module cache: %w", err)
	}
	unlock, err := lock(ctx, o.CacheDir, digest)
	if err != nil {
		return Entry{}, err
	}
	defer unlock()
	e, err := read(entryDir(o.CacheDir, digest, o.Skip), digest)
	if err == nil {
		return e, nil
	}
	// Under the lock no other process works on this digest: what is here was left by dead
	// processes, or is damaged.
	if err := sweep(o.CacheDir, digest, entryDir(o.CacheDir, digest, o.Skip)); err != nil {
		return Entry{}, err
	}
	if err := o.stage(ctx, module, digest); err != nil {
		return Entry{}, err
	}
	if e, err = read(entryDir(o.CacheDir, digest, o.Skip), digest); err != nil {
		return Entry{}, fmt.Errorf("read fresh entry of %s: %w", digest, err)
	}
	return e, nil
}

// Drop removes every entry of a module. Guests that run it are not disturbed. It is idempotent.
func Drop(cacheDir, digest string) error {
	if err := checkDigest(digest); err != nil {
		return err
	}
	if _, err := os.Stat(cacheDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := lock(context.Background(), cacheDir, digest)
	if err != nil {
		return err
	}
	defer unlock()
	names, err := filepath.Glob(filepath.Join(cacheDir, hash(digest)+"-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		// The entry disappears at once for readers, however long its removal takes.
		gone := filepath.Join(cacheDir, stagePrefix(digest)+"drop-"+filepath.Base(name))
		if err := os.Rename(name, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("drop entry %q: %w", name, err))
		}
	}
	return errors.Join(append(errs, sweep(cacheDir, digest))...)
}

// stagePrefix is the prefix of the names of a digest's unfinished and dropped directories.
func stagePrefix(digest string) string { return tmpPrefix + hash(digest) + "-" }

const tmpPrefix = "tmp-"

// hash is a digest without its algorithm.
func hash(digest string) string { return strings.TrimPrefix(digest, sha256Prefix) }

// sweep removes unfinished directories of a digest, and the damaged entries. The caller holds the
// lock.
func sweep(cacheDir, digest string, damaged ...string) error {
	names, err := filepath.Glob(filepath.Join(cacheDir, stagePrefix(digest)+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range append(names, damaged...) {
		errs = append(errs, os.RemoveAll(name))
	}
	return errors.Join(errs...)
}

func checkDigest(digest string) error {
	hash, ok := strings.CutPrefix(digest, sha256Prefix)
	if _, err := hex.DecodeString(hash); !ok || err != nil || len(hash) != 2*sha256.Size || strings.ToLower(hash) != hash {
		return fmt.Errorf("module digest %q is not sha256: %w", digest, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Digest reads a module to its end.
//
// # Errors
//
// ErrInvalidArgument for one that is too large.
func Digest(r io.Reader) (string, error) {
	h := sha256.New()
	// The bare reader and writer keep io.CopyBuffer from making a buffer of its own.
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, io.LimitReader(r, maxModule+1), make([]byte, readSize))
	if err != nil {
		return "", err
	}
	if n > maxModule {
		return "", fmt.Errorf("module is larger than %d MiB: %w", maxModule>>20, errdefs.ErrInvalidArgument)
	}
	return sha256Prefix + hex.EncodeToString(h.Sum(nil)), nil
}

func startPlain(cmd *exec.Cmd) (func() int, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() int {
		_ = cmd.Wait() // the exit code says it all
		return exitCode(cmd.ProcessState)
	}, nil
}
