package wasm

import (
	"fmt"
	"io"
	"sync"
	"time"

	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
)

// times are when it is told that something takes long.
type times struct {
	first    time.Duration // nothing is told before
	terminal time.Duration // how often a terminal's line is written anew
	plain    time.Duration // how often another one is added elsewhere
}

// tellTimes are those of the commands.
func tellTimes() times {
	return times{first: 500 * time.Millisecond, terminal: time.Second, plain: 10 * time.Second}
}

// tellCompiling tells that a module is compiled, its size and for how long already, until done is
// called, with what the caller returns: an error is the caller's to tell. What is compiled at once
// is not told.
func tellCompiling(w io.Writer, name string, size int64, t times) (done func(*error)) {
	if w == nil {
		return func(*error) {}
	}
	started, stop := time.Now(), make(chan error)
	what := fmt.Sprintf("%s (%s)", clean(name), units.Bytes(size))
	start, end, every := "", "\n", t.plain
	if show.IsTerminal(w) {
		start, end, every = "\r\x1b[K", "", t.terminal
	}
	var told sync.WaitGroup
	told.Go(func() {
		wait := time.NewTimer(t.first)
		defer wait.Stop()
		for said := false; ; said = true {
			select {
			case <-wait.C:
				fmt.Fprintf(w, "%ssunaba: compiling %s, %s%s", start, what, time.Since(started).Round(time.Second/10), end)
				wait.Reset(every)
			case err := <-stop:
				if said && err == nil {
					fmt.Fprintf(w, "%ssunaba: compiled %s in %s\n", start, what, time.Since(started).Round(time.Second/10))
				} else if said {
					fmt.Fprint(w, start)
				}
				return
			}
		}
	})
	return func(err *error) {
		stop <- *err
		told.Wait()
	}
}
