// Package thread runs code that changes the thread it runs on (its namespaces, cgroups,
// capabilities) and need not or cannot change it back.
package thread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs f on a thread of its own, which ends with it, and returns when f has. Processes that f
// starts have what f has made of the thread. They must not ask for a signal at their parent's
// death: it would come at once.
func Run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked, so that the thread ends here
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		// The main thread cannot end, and /proc shows it for the whole process. While it is held
		// here another one is found.
		Run(f)
		runtime.UnlockOSThread()
	}()
	<-done
}
