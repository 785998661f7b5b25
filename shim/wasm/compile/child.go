package compile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
)

// What a child finds and leaves.
const (
	childModule = 3 // descriptor of the module
	childOut    = 4 // descriptor of the directory that becomes its root and receives the entry
)

// childFlag is the only argument of a child, with the steps to skip as a number.
const childFlag = "-child="

// childArgs is how the parent calls a child.
func childArgs(skip Steps) []string {
	return []string{"compile", childFlag + strconv.FormatUint(uint64(skip), 10)}
}

// asChild says whether the arguments of the compile face make it a child.
func asChild(args []string) (skip Steps, ok bool) {
	if len(args) != 1 {
		return 0, false
	}
	text, ok := strings.CutPrefix(args[0], childFlag)
	n, err := strconv.ParseUint(text, 10, 8)
	return Steps(n), ok && err == nil
}

// exitExhausted is the child's exit code when it ran out of memory: the Go runtime's own.
const exitExhausted = 2

// Limits of a child.
const (
	maxSeconds = 600
	maxData    = 3 << 30 // bytes of memory; a 32-bit child cannot have as much anyway
)

// child compiles the module on childModule into childOut. It is root only until it is locked in.
func child(skip Steps) int {
	module := os.NewFile(childModule, "module")
	info, err := module.Stat()
	if err == nil {
		err = lockIn(info.Size())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	data, err := io.ReadAll(module)
	if err != nil {
		fmt.Fprintf(os.Stderr, "read module: %v\n", err)
		return 1
	}
	if err := compileInto("/", data, skip); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errRefused) {
			return exitRefused
		}
		return 1
	}
	return 0
}

// lockIn makes childOut the root and gives up everything that compiling does not need.
func lockIn(size int64) error {
	if err := unix.Fchdir(childOut); err != nil {
		return fmt.Errorf("enter output directory: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	unix.Close(childOut)
	for _, l := range []struct {
		resource int
		limit    uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_CPU, maxSeconds},
		{unix.RLIMIT_DATA, maxData},
		{unix.RLIMIT_FSIZE, uint64(size)*64 + 16<<20},
		{unix.RLIMIT_NOFILE, 64},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return fmt.Errorf("set resource limit %d: %w", l.resource, err)
		}
	}
	debug.SetMemoryLimit(maxData / 4 * 3)
	if err := cage.Drop(cage.Nobody, cage.Nobody, nil); err != nil {
		return err
	}
	return cage.NewFilter(cage.CompileCalls(), cage.Errno(unix.ENOSYS)).Install()
}
