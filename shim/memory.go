package shim

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// TuneMemory makes the Go runtime a small one: a shim lives as long as its pod and does
// little, so its memory counts and its speed between two calls does not.
func TuneMemory() {
	debug.SetGCPercent(30)
	if runtime.NumCPU() > 2 {
		runtime.GOMAXPROCS(2) // each further one has a cache of its own
	}
}

// GiveMemoryBack returns to the kernel what the last work needed and idling does not: free heap, and the
// pages of the program itself, which stay in the page cache and come back one by one when they are used.
func GiveMemoryBack() {
	debug.FreeOSMemory()
	unmapProgram()
}

// settleTime is how long a shim waits for the next call before it gives memory back.
const settleTime = 200 * time.Millisecond

// GiveMemoryBackSoon returns a function that has memory given back when it was not called for a while, so that
// the calls of a pod's start do not each pay for it. Nothing runs in between.
func GiveMemoryBackSoon() func() {
	timer := time.AfterFunc(settleTime, GiveMemoryBack)
	return func() { timer.Reset(settleTime) }
}

// unmapProgram lets the process forget the pages of its code and constants that it has looked at.
// They are clean pages of a file: nothing is lost, and a page that is needed is mapped again by its next use.
func unmapProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		begin, length, ok := programPart(lines.Text(), program)
		if ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, length, unix.MADV_DONTNEED)
		}
	}
}

// programPart reads a line of a maps file: whether it is a part of the program that is never written.
func programPart(line, program string) (begin, length uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[5] != program || len(fields[1]) != 4 || fields[1][1] != '-' || fields[1][3] != 'p' {
		return 0, 0, false
	}
	low, high, found := strings.Cut(fields[0], "-")
	from, err1 := strconv.ParseUint(low, 16, strconv.IntSize)
	to, err2 := strconv.ParseUint(high, 16, strconv.IntSize)
	if !found || err1 != nil || err2 != nil || to <= from {
		return 0, 0, false
	}
	return uintptr(from), uintptr(to - from), true
}
