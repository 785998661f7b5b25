package wasip1

import (
	"context"
	"runtime"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// putStrings writes a list of strings for args_get and environ_get: pointers at table, the strings
// themselves, each ended by a zero byte, at buffer.
func putStrings(mem api.Memory, list []string, table, buffer uint64) error {
	pointers, err := array(mem, table, uint64(len(list)), 4)
	if err != nil {
		return err
	}
	_, size := sizes(list)
	b, err := Record(mem, buffer, int(size))
	if err != nil {
		return err
	}
	at := uint32(buffer)
	for i, s := range list {
		put32(pointers[4*i:], at)
		n := copy(b, s)
		b[n] = 0
		b = b[n+1:]
		at += uint32(n) + 1
	}
	return nil
}

// sizes are the number of strings and of their bytes, ending zeros included.
func sizes(list []string) (count, size uint32) {
	for _, s := range list {
		size += uint32(len(s)) + 1
	}
	return uint32(len(list)), size
}

func putSizes(mem api.Memory, list []string, count, size uint64) error {
	first, err := Record(mem, count, 4)
	if err != nil {
		return err
	}
	second, err := Record(mem, size, 4)
	if err != nil {
		return err
	}
	n, bytes := sizes(list)
	put32(first, n)
	put32(second, bytes)
	return nil
}

func argsGet(h *Host, mem api.Memory, p []uint64) error {
	return putStrings(mem, h.config.Args, p[0], p[1])
}

func argsSizesGet(h *Host, mem api.Memory, p []uint64) error {
	return putSizes(mem, h.config.Args, p[0], p[1])
}

func environGet(h *Host, mem api.Memory, p []uint64) error {
	return putStrings(mem, h.config.Env, p[0], p[1])
}

func environSizesGet(h *Host, mem api.Memory, p []uint64) error {
	return putSizes(mem, h.config.Env, p[0], p[1])
}

// exit ends the guest with an exit code, verbatim.
func exit(ctx context.Context, mod api.Module, code uint32) {
	_ = mod.CloseWithExitCode(ctx, code)
	// Nothing of the guest may run after this: compilers put a trap behind the call.
	panic(sys.NewExitError(code))
}

// Signals of the specification by what happens to a process without a handler: the number of the
// Linux signal that ends it, or one of these.
const (
	signalIgnored = -1
	signalStops   = -2
)

var signals = [...]int{
	signalIgnored, int(unix.SIGHUP), int(unix.SIGINT), int(unix.SIGQUIT), int(unix.SIGILL),
	int(unix.SIGTRAP), int(unix.SIGABRT), int(unix.SIGBUS), int(unix.SIGFPE), int(unix.SIGKILL),
	int(unix.SIGUSR1), int(unix.SIGSEGV), int(unix.SIGUSR2), signalIgnored /* pipe */, int(unix.SIGALRM),
	int(unix.SIGTERM), signalIgnored /* chld */, signalIgnored /* cont */, signalStops, signalStops,
	signalStops, signalStops, signalIgnored /* urg */, int(unix.SIGXCPU), int(unix.SIGXFSZ),
	int(unix.SIGVTALRM), int(unix.SIGPROF), signalIgnored /* winch */, int(unix.SIGIO),
	int(unix.SIGPWR), int(unix.SIGSYS),
}

// raise acts as the specification's list says: a signal that terminates ends the guest with 128 and
// the signal's number on Linux, as a shell reports it. A guest cannot be stopped and continued.
func raise(ctx context.Context, mod api.Module, signal uint32) error {
	if signal >= uint32(len(signals)) {
		return unix.EINVAL
	}
	switch number := signals[signal]; number {
	case signalIgnored:
		return nil
	case signalStops:
		return unix.ENOTSUP
	default:
		exit(ctx, mod, uint32(128+number))
	}
	return nil
}

func schedYield(*Host, api.Memory, []uint64) error {
	runtime.Gosched()
	return nil
}

func randomGet(h *Host, mem api.Memory, p []uint64) error {
	out, err := Record(mem, p[0], int(uint32(p[1])))
	if err != nil {
		return err
	}
	return h.system.Random(out)
}
