package reaper

import (
	"os/exec"
	"runtime"

	"github.com/containerd/go-runc"
)

// Monitor makes a reaper the ProcessMonitor of go-runc, so that the runtime's own processes and
// the reaper do not take each other's exits.
type Monitor struct{ Reaper *Reaper }

var _ runc.ProcessMonitor = Monitor{}

// Start implements runc.ProcessMonitor.
func (m Monitor) Start(cmd *exec.Cmd) (chan runc.Exit, error) {
	exits, _, err := m.start(cmd)
	return exits, err
}

// StartLocked implements runc.ProcessMonitor: the thread that forks lives as long as the child.
func (m Monitor) StartLocked(cmd *exec.Cmd) (exits chan runc.Exit, err error) {
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var child *Child
		exits, child, err = m.start(cmd)
		close(started)
		if child != nil {
			<-child.Done
		}
	}()
	<-started
	return exits, err
}

func (m Monitor) start(cmd *exec.Cmd) (chan runc.Exit, *Child, error) {
	child, err := m.Reaper.Start(cmd)
	if err != nil {
		return nil, nil, err
	}
	exits := make(chan runc.Exit, 1)
	go func() {
		<-child.Done
		code, at := child.Status()
		exits <- runc.Exit{Pid: child.Pid, Status: code, Timestamp: at}
		close(exits)
	}()
	return exits, child, nil
}

// Wait implements runc.ProcessMonitor. Output that the command was given writers for is complete
// when it returns.
func (m Monitor) Wait(cmd *exec.Cmd, exits chan runc.Exit) (int, error) {
	e := <-exits
	_ = cmd.Wait() // the process is reaped already: this only ends the copying of its output
	_ = cmd.Process.Release()
	return e.Status, nil
}
