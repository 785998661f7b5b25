package shim

// undo is what takes back the steps of something that did not succeed, the last first.
type undo []func()

func (u *undo) add(f func()) { *u = append(*u, f) }

// release keeps what was done.
func (u *undo) release() { *u = nil }

func (u *undo) run() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
}
