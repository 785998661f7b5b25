package shim

import (
	"fmt"
	"time"

	"github.com/containerd/containerd/api/events"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sunaba-project/sunaba/shim/encode"
)

// encodeEvent encodes an event of the Task API, and names its message. Of the generated types nothing but the fields is used:
// to have them encode themselves would cost each shim some 100 KiB.
func encodeEvent(event proto.Message) (name string, m encode.Message) {
	switch e := event.(type) {
	case *events.TaskCreate:
		return "containerd.events.TaskCreate", encodeCreate(e)
	case *events.TaskStart:
		m.Text(1, e.ContainerID)
		m.Number(2, uint64(e.Pid))
		return "containerd.events.TaskStart", m
	case *events.TaskDelete:
		m.Text(1, e.ContainerID)
		m.Number(2, uint64(e.Pid))
		m.Number(3, uint64(e.ExitStatus))
		m.Time(4, moment(e.ExitedAt))
		m.Text(5, e.ID)
		return "containerd.events.TaskDelete", m
	case *events.TaskExit:
		m.Text(1, e.ContainerID)
		m.Text(2, e.ID)
		m.Number(3, uint64(e.Pid))
		m.Number(4, uint64(e.ExitStatus))
		m.Time(5, moment(e.ExitedAt))
		return "containerd.events.TaskExit", m
	case *events.TaskOOM:
		m.Text(1, e.ContainerID)
		return "containerd.events.TaskOOM", m
	case *events.TaskExecAdded:
		m.Text(1, e.ContainerID)
		m.Text(2, e.ExecID)
		return "containerd.events.TaskExecAdded", m
	case *events.TaskExecStarted:
		m.Text(1, e.ContainerID)
		m.Text(2, e.ExecID)
		m.Number(3, uint64(e.Pid))
		return "containerd.events.TaskExecStarted", m
	case *events.TaskPaused:
		m.Text(1, e.ContainerID)
		return "containerd.events.TaskPaused", m
	case *events.TaskResumed:
		m.Text(1, e.ContainerID)
		return "containerd.events.TaskResumed", m
	case *events.TaskCheckpointed:
		m.Text(1, e.ContainerID)
		m.Text(2, e.Checkpoint)
		return "containerd.events.TaskCheckpointed", m
	default:
		panic(fmt.Sprintf("event of type %T", event)) // ours are all above
	}
}

func encodeCreate(e *events.TaskCreate) (m encode.Message) {
	m.Text(1, e.ContainerID)
	m.Text(2, e.Bundle)
	for _, r := range e.Rootfs {
		var mount encode.Message
		mount.Text(1, r.Type)
		mount.Text(2, r.Source)
		mount.Text(3, r.Target)
		for _, o := range r.Options {
			mount.Message(4, encode.Message(o)) // a string is encoded like a message, and an empty one is not left out of a list
		}
		m.Message(3, mount)
	}
	if e.IO != nil {
		var io encode.Message
		io.Text(1, e.IO.Stdin)
		io.Text(2, e.IO.Stdout)
		io.Text(3, e.IO.Stderr)
		io.Bool(4, e.IO.Terminal)
		m.Message(4, io)
	}
	m.Text(5, e.Checkpoint)
	m.Number(6, uint64(e.Pid))
	return m
}

// anyOf wraps a message under its bare name, which containerd compares.
func anyOf(name string, value encode.Message) (m encode.Message) {
	m.Text(1, name)
	m.Message(2, value)
	return m
}

// moment is the time of an event, the zero time for none.
func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
