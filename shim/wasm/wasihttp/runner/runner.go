// Package runner keeps a few goroutines that have run guests. Their stacks have grown to what a
// guest needs, which a new goroutine's does by copies.
package runner

import "sync/atomic"

// maxIdle bounds the goroutines that wait for something to run.
const maxIdle = 16

// idle gives them something, and idlers counts them.
var (
	idle   = make(chan func())
	idlers atomic.Int64
)

// Run calls f on a goroutine of its own, which has run something before if one is idle.
func Run(f func()) {
	select {
	case idle <- f:
	default:
		go func() {
			for f(); idlers.Add(1) <= maxIdle; f() {
				f = <-idle
				idlers.Add(-1)
			}
			idlers.Add(-1)
		}()
	}
}
