package shim

import (
	"testing"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestEventsAreEncodedWhole has every event with every field set decoded by its generated type.
func TestEventsAreEncodedWhole(t *testing.T) {
	at := &timestamppb.Timestamp{Seconds: 1700000000, Nanos: 5}
	mounts := []*types.Mount{{Type: "overlay", Source: "o", Target: "t", Options: []string{"a=b", "", "c"}}, {Type: "bind", Source: "s"}}
	for _, event := range []proto.Message{
		&events.TaskCreate{
			ContainerID: "c", Bundle: "/b", Rootfs: mounts, Checkpoint: "/p", Pid: 7,
			IO: &events.TaskIO{Stdin: "i", Stdout: "o", Stderr: "e", Terminal: true},
		},
		&events.TaskStart{ContainerID: "c", Pid: 1 << 22},
		&events.TaskDelete{ContainerID: "c", Pid: 7, ExitStatus: 137, ExitedAt: at, ID: "x"},
		&events.TaskExit{ContainerID: "c", ID: "x", Pid: 7, ExitStatus: 255, ExitedAt: at},
		&events.TaskOOM{ContainerID: "c"},
		&events.TaskExecAdded{ContainerID: "c", ExecID: "x"},
		&events.TaskExecStarted{ContainerID: "c", ExecID: "x", Pid: 7},
		&events.TaskPaused{ContainerID: "c"},
		&events.TaskResumed{ContainerID: "c"},
		&events.TaskCheckpointed{ContainerID: "c", Checkpoint: "/p"},
	} {
		all := event.ProtoReflect().Descriptor().Fields()
		for i := range all.Len() {
			if field := all.Get(i); !event.ProtoReflect().Has(field) {
				t.Errorf("%T: the test does not set %s", event, field.Name())
			}
		}
		empty := event.ProtoReflect().New().Interface()
		for _, want := range []proto.Message{event, empty} {
			name, encoded := encodeEvent(want)
			if protoreflect.FullName(name) != want.ProtoReflect().Descriptor().FullName() {
				t.Errorf("%T is called %q", want, name)
			}
			got := want.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(encoded, got); err != nil || !proto.Equal(got, want) {
				t.Errorf("%T: %v, want %v: %v", want, got, want, err)
			}
		}
	}
}
