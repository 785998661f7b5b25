// Package events encodes the events of the Task API and forwards them to containerd.
package events

import (
	"time"

	"github.com/sunaba-project/sunaba/shim/message"
)

// Event is an event of the Task API, encoded.
type Event struct {
	Topic string
	Name  string // of the message, bare: containerd compares it
	Value []byte
}

// of is an event whose message has these fields, from 1 on.
func of(topic, name string, fields ...any) Event {
	return Event{Topic: topic, Name: "containerd.events." + name, Value: message.Fields(fields...)}
}

// Create says that a container was created.
func Create(r *message.CreateTaskRequest, pid uint32) Event {
	io := message.Fields[any](r.Stdin, r.Stdout, r.Stderr, r.Terminal)
	return of("/tasks/create", "TaskCreate", r.ID, r.Bundle, r.Rootfs, io, r.Checkpoint, pid)
}

// Start says that a container was started.
func Start(container string, pid uint32) Event {
	return of("/tasks/start", "TaskStart", container, pid)
}

// Delete says that a container was deleted, and how it had ended.
func Delete(container string, pid, code uint32, at time.Time) Event {
	return of("/tasks/delete", "TaskDelete", container, pid, code, message.At(at))
}

// Exit says how a process ended. The id of a container's first process is the container's.
func Exit(container, id string, pid, code uint32, at time.Time) Event {
	return of("/tasks/exit", "TaskExit", container, id, pid, code, message.At(at))
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

// ExecAdded says that a process was added to a container.
func ExecAdded(container, exec string) Event {
	return of("/tasks/exec-added", "TaskExecAdded", container, exec)
}

// ExecStarted says that such a process was started.
func ExecStarted(container, exec string, pid uint32) Event {
	return of("/tasks/exec-started", "TaskExecStarted", container, exec, pid)
}

// Checkpointed says that the state of a container was written to a folder.
func Checkpointed(container, checkpoint string) Event {
	return of("/tasks/checkpointed", "TaskCheckpointed", container, checkpoint)
}
