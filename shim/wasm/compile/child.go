package compile

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
)

// Descriptors of a child.
const (
	childModule = 3 // the module
	childOut    = 4 // the directory that becomes its root and receives the entry
)

// childFlag is the only argument of a child, with the steps to skip as a number, its limits, and
// the engine that the entry is for.
const childFlag = "-child="

// childArgs returns the arguments of a child.
func childArgs(skip Steps, l limits) []string {
	return []string{"compile", fmt.Sprintf("%s%d,%d,%d,%d,%s", childFlag, skip, l.seconds, l.data, l.heap, told())}
}

// asChild says whether the arguments of the compile face make it a child, and for which engine.
func asChild(args []string) (skip Steps, l limits, made string, ok bool) {
	if len(args) != 1 || !strings.HasPrefix(args[0], childFlag) {
		return 0, l, "", false
	}
	_, err := fmt.Sscanf(args[0], childFlag+"%d,%d,%d,%d,%s", &skip, &l.seconds, &l.data, &l.heap, &made)
	return skip, l, made, err == nil
}

// exitExhausted is the child's exit code when it ran out of memory: the Go runtime's own.
const exitExhausted = 2

// limits are what a child may use.
type limits struct {
	seconds uint64 // of CPU time
	data    uint64 // bytes of memory; a 32-bit child cannot have as much anyway
	heap    uint64 // bytes near which garbage is collected more often; 0 = by data
}

// ample returns limits that suffice for any well-meant module of this size, and keep a small one
// from making others wait for long.
func ample(size int64) limits {
	const base, perMiB, most = 120, 20, 600
	return limits{seconds: min(base+perMiB*uint64(size>>20), most), data: 3 << 30}
}

// child runs work on the module in childModule, with childOut as the directory. It is root only
// until lockIn.
func child(skip Steps, l limits, work func(dir string, module []byte, skip Steps) error) error {
	module := os.NewFile(childModule, "module")
	info, err := module.Stat()
	if err == nil {
		err = lockIn(info.Size(), l)
	}
	if err != nil {
		return err
	}
	data, err := io.ReadAll(module)
	if err != nil {
		return err
	}
	return work("/", data, skip)
}

// lockIn makes childOut the root and drops all privileges that compiling does not need.
func lockIn(size int64, may limits) error {
	if err := unix.Fchdir(childOut); err != nil {
		return fmt.Errorf("enter output directory: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	for _, l := range []struct {
		resource int
		limit    uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_CPU, may.seconds},
		{unix.RLIMIT_DATA, may.data},
		{unix.RLIMIT_FSIZE, uint64(size)*64 + 16<<20},
		{unix.RLIMIT_NOFILE, 64},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return fmt.Errorf("set resource limit %d: %w", l.resource, err)
		}
	}
	debug.SetMemoryLimit(int64(cmp.Or(may.heap, may.data) / 4 * 3))
	if err := cage.Drop(cage.Nobody, cage.Nobody, nil); err != nil {
		return err
	}
	// The module is open already: no path is needed.
	if err := cage.Confine([]cage.Tree{{FD: childOut}}); err != nil {
		return err
	}
	unix.Close(childOut)
	return cage.NewFilter(cage.CompileCalls(), cage.Errno(unix.ENOSYS)).Install()
}
