package cage

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// run is what a filter answers, by its own reading of the program.
func (f Filter) run(t *testing.T, arch, nr uint32, args [6]uint64) Verdict {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(f.code); pc++ {
		switch i := f.code[pc]; i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch {
			case i.K == offsetNr:
				a = nr
			case i.K == offsetArch:
				a = arch
			default:
				a = uint32(args[(i.K-offsetArgs)/8] >> (i.K % 8 * 8))
			}
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(i.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			yes := a == i.K
			if i.Code&unix.BPF_JGE == unix.BPF_JGE {
				yes = a >= i.K
			}
			if yes {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return Verdict(i.K)
		default:
			t.Fatalf("instruction %d: code %#x is not known", pc, i.Code)
		}
	}
	t.Fatal("the program does not answer")
	return 0
}

// TestFilterAnswersForEveryNumber compares the program with the list it was made from.
func TestFilterAnswersForEveryNumber(t *testing.T) {
	const rest = Verdict(unix.SECCOMP_RET_LOG)
	for _, list := range [][]Call{nil, GuestCalls(), CompileCalls(), SealCalls()} {
		f := NewFilter(list, rest)
		for nr := range uint32(1000) {
			i := slices.IndexFunc(list, func(c Call) bool { return uint32(c.Nr) == nr })
			want, other := rest, rest
			var args [6]uint64
			if i >= 0 {
				c := list[i]
				want, other = c.Then, c.Then
				for _, cond := range c.When {
					args[cond.Arg] = uint64(cond.In[len(cond.In)-1])
					other = c.Otherwise
				}
			}
			if got := f.run(t, auditArch, nr, args); got != want {
				t.Errorf("call %d: %#x, want %#x", nr, got, want)
			}
			var none [6]uint64
			if i >= 0 {
				for _, cond := range list[i].When {
					if mask := cond.Mask; mask == 0 || !slices.Contains(cond.In, mask) {
						none[cond.Arg] = 1<<64 - 1
					}
				}
			}
			if got := f.run(t, auditArch, nr, none); got != other {
				t.Errorf("call %d with other arguments: %#x, want %#x", nr, got, other)
			}
			if i >= 0 {
				for _, or := range list[i].Or {
					var mixed [6]uint64
					for _, cond := range or {
						args[cond.Arg], mixed[cond.Arg] = uint64(cond.In[len(cond.In)-1]), uint64(cond.In[len(cond.In)-1])
					}
					if got := f.run(t, auditArch, nr, args); got != want {
						t.Errorf("call %d with %v: %#x, want %#x", nr, or, got, want)
					}
					mixed[or[len(or)-1].Arg] = 1<<32 - 1
					if got := f.run(t, auditArch, nr, mixed); got != other {
						t.Errorf("call %d with another value than in %v: %#x, want %#x", nr, or, got, other)
					}
				}
			}
			if got := f.run(t, auditArch+1, nr, args); got != Kill {
				t.Errorf("call %d of another architecture: %#x", nr, got)
			}
		}
		if got := f.run(t, auditArch, 0x40000000, [6]uint64{}); runtime.GOARCH == "amd64" && got != Kill {
			t.Errorf("x32 call: %#x", got)
		}
		if n := len(f.code); n > 4096 {
			t.Errorf("%d instructions, the kernel takes 4096", n)
		}
	}
}
