// Package killer ends a process with SIGKILL at a chosen place of its work: just before its Nth
// system call that others can see (a file made, renamed or synced, a mount, a message sent, a
// process started). The process is not changed for that; it is watched as a debugger does, by a
// helper, which is this program once more: its main function calls Serve first.
//
// # Life of a killer
//
// Send starts the helper. It stops every thread of its victim at each system call, counts, and
// kills at the count that the order names. Leave lets the victim run on, if it is not dead, and
// returns what it was seen to do. Both work on the calls of the whole process, in the order in
// which the kernel gets them.
package killer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// face is set in the environment of the helper.
const face = "SUNABA_KILLER"

// Order says whom to kill, and when.
type Order struct {
	PID int
	// Await, if not empty, stands for the process id that a file will hold whose name matches this
	// pattern and is not among Known: a process that does not exist yet.
	Await string
	Known []string
	// At is the number of the step before which it is killed, from 1 on; 0 kills at none. Before, if
	// not empty, is a step instead of its number, as Step.String has it.
	At     int
	Before string
}

// Step is a system call that others can see.
type Step struct {
	Call string // its name
	On   string // what it is about: a path, or the kind of a descriptor
}

func (s Step) String() string { return strings.TrimSpace(s.Call + " " + s.On) }

// Report is what a killer saw.
type Report struct {
	Steps  []Step // the last one is that before which the victim was killed
	Killed bool
}

// Killer watches a process.
type Killer struct {
	helper *exec.Cmd
	leave  io.Closer
	ended  chan struct{}
	report Report
	failed string
}

// line is what the helper says.
type line struct {
	Ready  bool   `json:",omitempty"`
	Step   *Step  `json:",omitempty"`
	Killed bool   `json:",omitempty"`
	Failed string `json:",omitempty"`
}

// Serve ends this program with the work of a helper, if it was started as one.
func Serve() {
	if os.Getenv(face) != "" {
		os.Exit(help())
	}
}

// Send starts watching. It returns when every thread of the victim is watched, or, where the order
// awaits one, at once.
func Send(o Order) (*Killer, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	k := &Killer{helper: exec.Command("/proc/self/exe"), ended: make(chan struct{})}
	k.helper.Env = append(os.Environ(), face+"="+string(order))
	k.helper.Stderr = os.Stderr
	k.helper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := k.helper.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if k.leave, err = k.helper.StdinPipe(); err != nil {
		return nil, err
	}
	if err := k.helper.Start(); err != nil {
		return nil, fmt.Errorf("start killer: %w", err)
	}
	ready := make(chan struct{})
	go k.listen(out, ready)
	select {
	case <-ready:
		return k, nil
	case <-k.ended:
		_, err := k.Leave()
		return nil, errors.Join(errors.New("the killer ended before it was ready"), err)
	}
}

func (k *Killer) listen(out io.Reader, ready chan<- struct{}) {
	defer close(k.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			k.failed = err.Error()
			return
		}
		switch {
		case l.Ready:
			close(ready)
		case l.Step != nil:
			k.report.Steps = append(k.report.Steps, *l.Step)
		case l.Killed:
			k.report.Killed = true
		case l.Failed != "":
			k.failed = l.Failed
		}
	}
}

// Ended is closed when the victim has ended.
func (k *Killer) Ended() <-chan struct{} { return k.ended }

// Leave lets the victim go, if it lives, and returns what it did.
func (k *Killer) Leave() (Report, error) {
	k.leave.Close()
	<-k.ended
	err := k.helper.Wait()
	if k.failed != "" {
		err = errors.New(k.failed)
	}
	if err != nil {
		return k.report, fmt.Errorf("killer: %w", err)
	}
	return k.report, nil
}
