package cage

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
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
	When []Cond
	// Or are other lists of conditions that are enough in place of When.
	Or        [][]Cond
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
	f := Filter{code: make([]unix.SockFilter, 0, 4*len(calls)+64)}
	f.load(offsetArch)
	f.jump(unix.BPF_JEQ, auditArch, 1, 0)
	f.answer(Kill)
	f.load(offsetNr)
	f.choose(spans(calls, rest))
	return f
}

// span is what is done with the numbers from first to where the next span starts.
type span struct {
	first uint32
	call  *Call
}

// spans covers all numbers with the verdicts of calls, and rest between them.
func spans(calls []Call, rest Verdict) []span {
	sorted := make([]*Call, len(calls))
	for i := range calls {
		sorted[i] = &calls[i]
	}
	slices.SortFunc(sorted, func(a, b *Call) int { return cmp.Compare(a.Nr, b.Nr) })
	all := make([]span, 0, 2*len(calls)+2)
	add := func(first uint32, c *Call) {
		if n := len(all); n == 0 || len(c.When)+len(all[n-1].call.When) > 0 || all[n-1].call.Then != c.Then {
			all = append(all, span{first, c})
		}
	}
	next, between := uint32(0), &Call{Then: rest}
	for _, c := range sorted {
		nr := uint32(c.Nr)
		if nr > next {
			add(next, between)
		}
		add(nr, c)
		next = nr + 1
	}
	add(next, between)
	if runtime.GOARCH == "amd64" {
		const x32 = 0x40000000
		add(x32, &Call{Then: Kill})
	}
	return all
}

// choose appends what finds the span of the number that is loaded, by halves: a list as long as
// ours, tried from its start, would cost every call much, and the kernel tries it with every number
// there is when it is installed.
func (f *Filter) choose(spans []span) {
	if len(spans) == 1 {
		f.call(spans[0].call)
		return
	}
	middle := len(spans) / 2
	at := len(f.code)
	f.jump(unix.BPF_JGE, spans[middle].first, 0, 0)
	f.choose(spans[:middle])
	if skip := len(f.code) - at - 1; skip <= math.MaxUint8 {
		f.code[at].Jt = uint8(skip)
	} else { // farther than a test can jump
		f.code[at].Jf = 1
		f.code = slices.Insert(f.code, at+1, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(skip)})
	}
	f.choose(spans[middle:])
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

// call appends what is done with one call. It ends in an answer on every path.
func (f *Filter) call(c *Call) {
	when := c.When
	for _, or := range c.Or {
		// What fails is tested further behind the answer.
		const elsewhere = Verdict(math.MaxUint32)
		first := len(f.code)
		f.all(when, elsewhere, c.Then)
		for i := first; i < len(f.code); i++ {
			if f.code[i] == (unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(elsewhere)}) {
				f.code[i] = unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(f.code) - i - 1)}
			}
		}
		when = or
	}
	f.all(when, c.Otherwise, c.Then)
}

// all appends an answer for when all conditions hold, and one for when not.
func (f *Filter) all(when []Cond, otherwise, then Verdict) {
	for _, cond := range when {
		f.cond(cond, otherwise)
	}
	f.answer(then)
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
