package thread

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRunUsesAThreadThatEnds(t *testing.T) {
	for range 20 { // some of these begin on the main thread
		var tid int
		Run(func() { tid = unix.Gettid() })
		if tid == 0 || tid == os.Getpid() {
			t.Fatalf("ran on thread %d of process %d", tid, os.Getpid())
		}
		path := "/proc/self/task/" + strconv.Itoa(tid)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); os.IsNotExist(err) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("thread %d is still there", tid)
			}
		}
	}
}
