package events

import (
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/shim/message"
)

// TestEventsAreEncodedWhole has every event, with every field set and with none, decoded by its
// generated type.
func TestEventsAreEncodedWhole(t *testing.T) {
	at := time.Unix(1700000000, 5)
	stamp := timestamppb.New(at)
	mounts := []*types.Mount{{Type: "overlay", Source: "o", Target: "t", Options: []string{"a=b", "", "c"}}, {Type: "bind", Source: "s"}}
	create := &message.CreateTaskRequest{
		ID: "c", Bundle: "/b", Checkpoint: "/p", Stdin: "i", Stdout: "o", Stderr: "e", Terminal: true,
	}
	for _, m := range mounts {
		create.Rootfs = append(create.Rootfs, mount.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	for _, c := range []struct {
		full, empty Event
		want        proto.Message
		never       string // a field that is never set
	}{
		{Create(create, 7), Create(&message.CreateTaskRequest{}, 0), &events.TaskCreate{
			ContainerID: "c", Bundle: "/b", Rootfs: mounts, Checkpoint: "/p", Pid: 7,
			IO: &events.TaskIO{Stdin: "i", Stdout: "o", Stderr: "e", Terminal: true},
		}, ""},
		{Start("c", 1<<22), Start("", 0), &events.TaskStart{ContainerID: "c", Pid: 1 << 22}, ""},
		{Delete("c", 7, 137, at), Delete("", 0, 0, time.Time{}),
			&events.TaskDelete{ContainerID: "c", Pid: 7, ExitStatus: 137, ExitedAt: stamp}, "id"},
		{Exit("c", "x", 7, 255, at), Exit("", "", 0, 0, time.Time{}),
			&events.TaskExit{ContainerID: "c", ID: "x", Pid: 7, ExitStatus: 255, ExitedAt: stamp}, ""},
		{OOM("c"), OOM(""), &events.TaskOOM{ContainerID: "c"}, ""},
		{ExecAdded("c", "x"), ExecAdded("", ""), &events.TaskExecAdded{ContainerID: "c", ExecID: "x"}, ""},
		{ExecStarted("c", "x", 7), ExecStarted("", "", 0), &events.TaskExecStarted{ContainerID: "c", ExecID: "x", Pid: 7}, ""},
		{Paused("c"), Paused(""), &events.TaskPaused{ContainerID: "c"}, ""},
		{Resumed("c"), Resumed(""), &events.TaskResumed{ContainerID: "c"}, ""},
		{Checkpointed("c", "/p"), Checkpointed("", ""), &events.TaskCheckpointed{ContainerID: "c", Checkpoint: "/p"}, ""},
	} {
		all := c.want.ProtoReflect().Descriptor().Fields()
		for i := range all.Len() {
			if field := all.Get(i); !c.want.ProtoReflect().Has(field) && string(field.Name()) != c.never {
				t.Errorf("%T: the test does not set %s", c.want, field.Name())
			}
		}
		none := c.want.ProtoReflect().New().Interface()
		if none, ok := none.(*events.TaskCreate); ok {
			none.IO = &events.TaskIO{}
		}
		for _, one := range []struct {
			event Event
			want  proto.Message
		}{{c.full, c.want}, {c.empty, none}} {
			if protoreflect.FullName(one.event.Name) != one.want.ProtoReflect().Descriptor().FullName() {
				t.Errorf("%T is called %q", one.want, one.event.Name)
			}
			got := one.want.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(one.event.Value, got); err != nil || !proto.Equal(got, one.want) {
				t.Errorf("%T: %v, want %v: %v", one.want, got, one.want, err)
			}
		}
	}
}
