package killer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// help does a helper's work, and returns its exit code.
func help() int {
	var o Order
	say := &speaker{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(os.Getenv(face)), &o); err != nil {
		say.line(line{Failed: err.Error()})
		return 1
	}
	go func() { // the kernel lets go of what is watched when this process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		say.mu.Lock() // not in the middle of a line
		os.Exit(0)
	}()
	runtime.LockOSThread() // who watches is a thread
	w := &watcher{order: o, say: say, threads: map[int]bool{}}
	if err := w.run(); err != nil {
		say.line(line{Failed: err.Error()})
		return 1
	}
	return 0
}

// speaker tells the program that sent the killer.
type speaker struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (s *speaker) line(l line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(l) // nobody may be left to hear it
}

// watcher follows the threads of one process.
type watcher struct {
	order   Order
	say     *speaker
	threads map[int]bool // those that are watched; true once they were stopped for the first time
	ready   bool
	steps   int
	killed  bool
}

func (w *watcher) run() error {
	if w.order.Await != "" {
		w.ready = true
		w.say.line(line{Ready: true})
		w.order.PID = await(w.order.Await, w.order.Known)
	}
	if err := w.seize(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return nil // all have ended
		case err != nil:
			return fmt.Errorf("wait for threads of %d: %w", w.order.PID, err)
		}
		if status.Stopped() {
			w.threads[tid] = true
			w.stopped(tid, status)
		} else {
			delete(w.threads, tid) // maybe before it was stopped, and the last that had not been
		}
		if !w.ready && w.all() {
			w.ready = true
			w.say.line(line{Ready: true})
		}
	}
}

func (w *watcher) all() bool {
	for _, seen := range w.threads {
		if !seen {
			return false
		}
	}
	return true
}

// await polls for a file that names a process.
func await(pattern string, known []string) int {
	for {
		names, _ := filepath.Glob(pattern) // the pattern is right or none is ever found
		for _, name := range names {
			if slices.Contains(known, name) {
				continue
			}
			data, err := os.ReadFile(name)
			if err != nil {
				continue
			}
			if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
				return pid
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE

// seize starts to watch every thread; new ones are watched from their start.
func (w *watcher) seize() error {
	for again := true; again; {
		again = false
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", w.order.PID))
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if _, known := w.threads[tid]; known || err != nil {
				continue
			}
			err = ptrace(unix.PTRACE_SEIZE, tid, 0, options)
			if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EPERM) && w.done(tid) {
				continue // it has ended, or started while its maker was watched
			}
			if err != nil {
				return fmt.Errorf("watch thread %d: %w", tid, err)
			}
			w.threads[tid] = false
			again = true
			if err := ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("stop thread %d: %w", tid, err)
			}
		}
	}
	return nil
}

// done says whether there is nothing to do about a thread that ptrace failed to seize: this process
// watches it already, or it has ended and only its remains are there.
func (w *watcher) done(tid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return true
	}
	for _, line := range []string{fmt.Sprintf("TracerPid:\t%d\n", os.Getpid()), "State:\tZ", "State:\tX"} {
		if strings.Contains(string(data), line) {
			return true
		}
	}
	return false
}

// stopped looks at a thread that stands still and lets it continue.
func (w *watcher) stopped(tid int, status unix.WaitStatus) {
	signal, event := status.StopSignal(), int(status)>>16
	deliver := 0
	switch {
	case signal == unix.SIGTRAP|0x80:
		w.call(tid)
	case event == unix.PTRACE_EVENT_STOP && signal != unix.SIGTRAP:
		_ = ptrace(unix.PTRACE_LISTEN, tid, 0, 0) // stopped by a signal, and stays so
		return
	case event == 0:
		deliver = int(signal)
	}
	_ = ptrace(unix.PTRACE_SYSCALL, tid, 0, uintptr(deliver)) // it may be dead
}

// info is what the kernel says of a system call; it is the start of its struct
// ptrace_syscall_info.
type info struct {
	op   uint8
	_    [3]uint8
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64
	args [6]uint64
}

const entry = 1 // of a system call, in info.op

// call counts a system call that is about to be done, and kills. What a victim does before it is
// watched with all of its threads is not of what it will be asked to do.
func (w *watcher) call(tid int) {
	var i info
	if err := ptrace(unix.PTRACE_GET_SYSCALL_INFO, tid, unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i))); err != nil || i.op != entry || w.killed || !w.ready {
		return
	}
	step, ok := w.step(tid, &i)
	if !ok {
		return
	}
	w.steps++
	if w.steps == w.order.At || step.String() == w.order.Before {
		w.killed = unix.Kill(w.order.PID, unix.SIGKILL) == nil
	}
	w.say.line(line{Step: &step})
	if w.killed {
		w.say.line(line{Killed: true})
	}
}

func ptrace(request, tid int, address, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), address, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// memory reads n bytes of the victim's memory, or as many as there are up to its page's end.
func (w *watcher) memory(address uint64, n int) []byte {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", w.order.PID))
	if err != nil {
		return nil
	}
	defer f.Close()
	data := make([]byte, n)
	read, _ := f.ReadAt(data, int64(address))
	return data[:max(read, 0)]
}

// text reads a string that ends with a zero byte.
func (w *watcher) text(address uint64) string {
	data := w.memory(address, 512)
	if i := slices.Index(data, 0); i >= 0 {
		data = data[:i]
	}
	return string(data)
}

func (w *watcher) word(address uint64) uint64 {
	data := w.memory(address, 8)
	if len(data) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(data)
}
