package runner

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestIdleOnesAreFew has many functions run at once, each on a goroutine of its own, and few of
// these goroutines stay.
func TestIdleOnesAreFew(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		const many = 20 * maxIdle
		var running, ended sync.WaitGroup
		release := make(chan struct{})
		running.Add(many)
		ended.Add(many)
		for range many {
			Run(func() {
				defer ended.Done()
				running.Done()
				<-release
			})
		}
		running.Wait() // or for ever, if one waits for another
		close(release)
		ended.Wait()
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+maxIdle; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
			}
		}
	}
}
