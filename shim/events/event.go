// Package events encodes the events of the Task API and forwards them to containerd.
package events

import (
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/sunaba-project/sunaba/shim/encode"
)

// Event is an event of the Task API, encoded. The generated types of containerd's events are not
// linked in: their tables, made when a program starts, would cost every process of this binary
// 50 KiB, and their use more.
type Event struct {
	Topic string
	Name  string // of the message, bare: containerd compares it
	Value encode.Message
}

const eventPackage = "containerd.events."

// Create says that a container was created.
func Create(r *task.CreateTaskRequest, pid uint32) Event {
	e := Event{Topic: "/tasks/create", Name: eventPackage + "TaskCreate"}
	m := &e.Value
	m.Text(1, r.ID)
	m.Text(2, r.Bundle)
	for _, given := range r.Rootfs {
		var mount encode.Message
		mount.Text(1, given.Type)
		mount.Text(2, given.Source)
		mount.Text(3, given.Target)
		for _, o := range given.Options {
			mount.Message(4, encode.Message(o)) // a string is encoded like a message, and an empty one is not left out of a list
		}
		m.Message(3, mount)
	}
	var io encode.Message
	io.Text(1, r.Stdin)
	io.Text(2, r.Stdout)
	io.Text(3, r.Stderr)
	io.Bool(4, r.Terminal)
	m.Message(4, io)
	m.Text(5, r.Checkpoint)
	m.Number(6, uint64(pid))
	return e
}

// Start says that a container was started.
func Start(container string, pid uint32) Event {
	e := Event{Topic: "/tasks/start", Name: eventPackage + "TaskStart"}
	e.Value.Text(1, container)
	e.Value.Number(2, uint64(pid))
	return e
}

// Delete says that a container was deleted, and how it had ended.
func Delete(container string, pid, code uint32, at time.Time) Event {
	e := Event{Topic: "/tasks/delete", Name: eventPackage + "TaskDelete"}
	e.Value.Text(1, container)
	e.Value.Number(2, uint64(pid))
	e.Value.Number(3, uint64(code))
	e.Value.Time(4, at)
	return e
}

// Exit says how a process ended. The id of a container's first process is the container's.
func Exit(container, id string, pid, code uint32, at time.Time) Event {
	e := Event{Topic: "/tasks/exit", Name: eventPackage + "TaskExit"}
	e.Value.Text(1, container)
	e.Value.Text(2, id)
	e.Value.Number(3, uint64(pid))
	e.Value.Number(4, uint64(code))
	e.Value.Time(5, at)
	return e
}

// OOM says that a process of a container was killed for lack of memory.
func OOM(container string) Event {
	return of("/tasks/oom", "TaskOOM", container)
}

// Paused says that a container was paused.
func Paused(container string) Event {
	return of("/tasks/paused", "TaskPaused", container)
}

// Resumed says that a container was resumed.
func Resumed(container string) Event {
	return of("/tasks/resumed", "TaskResumed", container)
}

func of(topic, name, container string) Event {
	e := Event{Topic: topic, Name: eventPackage + name}
	e.Value.Text(1, container)
	return e
}

// ExecAdded says that a process was added to a container.
func ExecAdded(container, exec string) Event {
	e := of("/tasks/exec-added", "TaskExecAdded", container)
	e.Value.Text(2, exec)
	return e
}

// ExecStarted says that such a process was started.
func ExecStarted(container, exec string, pid uint32) Event {
	e := of("/tasks/exec-started", "TaskExecStarted", container)
	e.Value.Text(2, exec)
	e.Value.Number(3, uint64(pid))
	return e
}

// Checkpointed says that the state of a container was written to a folder.
func Checkpointed(container, checkpoint string) Event {
	e := of("/tasks/checkpointed", "TaskCheckpointed", container)
	e.Value.Text(2, checkpoint)
	return e
}

// any wraps the event's message under its name.
func (e Event) any() (m encode.Message) {
	m.Text(1, e.Name)
	m.Message(2, e.Value)
	return m
}
