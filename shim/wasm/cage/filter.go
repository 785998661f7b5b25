package cage

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Verdict is what the kernel does with a call.
type Verdict uint32

// Verdicts. Errno makes the call fail.
const (
	Allow Verdict = unix.SECCOMP_RET_ALLOW
	Kill  Verdict = unix.SECCOMP_RET_KILL_PROCESS
)

// Errno is the verdict that makes a call fail with e.
func Errno(e unix.Errno) Verdict { return unix.SECCOMP_RET_ERRNO | Verdict(e) }

// Call is one line of a filter.
type Call struct {
	Nr   uintptr
	Name string
	Why  string
	// When, if set, are conditions on the arguments that all must hold for Then; else Otherwise.
	When      []Cond
	Then      Verdict
	Otherwise Verdict
}

// Cond holds when argument Arg (from 0), masked with Mask, is one of In. Mask 0 is the whole
// argument. Values fit in 32 bits.
type Cond struct {
	Arg  int
	Mask uint32
	In   []uint32
}

// Offsets in struct seccomp_data.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// Filter is a compiled list of calls.
type Filter struct{ code []unix.SockFilter }

// NewFilter compiles calls. What no call names gets rest.
func NewFilter(calls []Call, rest Verdict) Filter {
	f := Filter{code: make([]unix.SockFilter, 0, 2*len(calls)+16)}
	f.load(offsetArch)
	f.jump(unix.BPF_JEQ, auditArch, 1, 0)
	f.answer(Kill)
	f.load(offsetNr)
	if runtime.GOARCH == "amd64" {
		const x32 = 0x40000000
		f.jump(unix.BPF_JGE, x32, 0, 1)
		f.answer(Kill)
	}
	for _, c := range calls {
		f.call(c)
	}
	f.answer(rest)
	return f
}

func (f *Filter) load(offset uint32) {
	f.code = append(f.code, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

func (f *Filter) jump(op uint16, value uint32, yes, no uint8) {
	f.code = append(f.code, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: value, Jt: yes, Jf: no})
}

func (f *Filter) answer(v Verdict) {
	f.code = append(f.code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(v)})
}

// call appends the block of one call. A block ends in an answer on every path, so that the
// number is still loaded where the next one begins.
func (f *Filter) call(c Call) {
	body := Filter{}
	for _, cond := range c.When {
		body.cond(cond, c.Otherwise)
	}
	body.answer(c.Then)
	f.jump(unix.BPF_JEQ, uint32(c.Nr), 0, uint8(len(body.code)))
	f.code = append(f.code, body.code...)
}

// cond appends a test that falls through when it holds and answers otherwise when it does not.
// Arguments are little-endian 64-bit words on every architecture that is built for.
func (f *Filter) cond(c Cond, otherwise Verdict) {
	low := uint32(offsetArgs + 8*c.Arg)
	if c.Mask == 0 {
		f.load(low + 4)
		f.jump(unix.BPF_JEQ, 0, 1, 0)
		f.answer(otherwise)
	}
	f.load(low)
	if c.Mask != 0 {
		f.code = append(f.code, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.Mask})
	}
	for i, v := range c.In {
		f.jump(unix.BPF_JEQ, v, uint8(len(c.In)-i), 0)
	}
	f.answer(otherwise)
}

// Install puts the filter on every thread of the process, for good. The thread that calls it has
// no_new_privs, by Narrow or Drop, and gives it to the others.
func (f Filter) Install() error {
	program := unix.SockFprog{Len: uint16(len(f.code)), Filter: &f.code[0]}
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(f)
	if errno != 0 {
		return fmt.Errorf("install seccomp filter: %w", errno)
	}
	if failed != 0 {
		return fmt.Errorf("install seccomp filter: thread %d has another", failed)
	}
	return nil
}
