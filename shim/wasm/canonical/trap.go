package canonical

import "fmt"

// Trap is the error of a guest that ended because it did what the specification does not allow. It
// is in the chain of what wazero returns.
type Trap struct {
	Import string // the function that was called, as the guest imports it
	Text   string
}

func (t *Trap) Error() string { return t.Import + ": " + t.Text }

// Trapf ends the guest. It does not return: nothing of the guest runs afterwards.
//
//go:noinline
func Trapf(format string, args ...any) { panic(&Trap{Text: fmt.Sprintf(format, args...)}) }
