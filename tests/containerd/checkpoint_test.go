package containerd

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	apitypes "github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/metadata"
)

// containerd checkpoints a task through the shim, and makes one from that checkpoint, which goes on
// where the other was once it is started, not before.
func TestCheckpoint(t *testing.T) {
	if out, err := exec.Command("criu", "check").CombinedOutput(); err != nil {
		t.Skipf("not run: criu check: %v\n%s", err, out)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()) // containerd lays out checkpoints there, and leaves them
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		program := []string{"/bin/busybox", "awk", `BEGIN { while (1) { print ++i; fflush(); system("sleep 0.05") } }`} // old ctrs take a -c for theirs
		first := b.task("first", nil, world.busybox, program...)
		first.create()
		first.start("")
		time.Sleep(time.Second)
		b.ctr("leases", "create", "--id", "kept") // of what no image names, containerd removes what no lease holds
		leased := metadata.AppendToOutgoingContext(b.ctx(), "containerd-lease", "kept")
		saved := must(b.tasks.Checkpoint(leased, &tasks.CheckpointTaskRequest{ContainerID: first.id}))(t)
		i := slices.IndexFunc(saved.Descriptors, func(d *apitypes.Descriptor) bool { return strings.HasSuffix(d.MediaType, ".criu.tar") })
		if i < 0 {
			t.Fatalf("no state among %v", saved.Descriptors)
		}
		first.is("", tasktypes.Status_RUNNING)
		time.Sleep(300 * time.Millisecond)
		was := end(first)

		again := b.task("again", nil, world.busybox, program...)
		again.checkpoint = saved.Descriptors[i]
		if pid := again.create(); pid != 0 {
			t.Errorf("pid %d before the start", pid)
		}
		again.is("", tasktypes.Status_CREATED)
		never := b.task("never", nil, world.busybox, program...)
		never.checkpoint = saved.Descriptors[i]
		never.create()
		first.delete()
		if pid := again.start(""); pid == 0 {
			t.Error("no pid after the start")
		}
		again.is("", tasktypes.Status_RUNNING)
		time.Sleep(300 * time.Millisecond)
		if is := end(again); is[0] < 2 || is[0] >= was[len(was)-1] || len(is) < 2 {
			t.Errorf("the first counted to %d, the other from %d to %d", was[len(was)-1], is[0], is[len(is)-1])
		}
		again.delete()
		never.delete()
		b.ctr("leases", "delete", "kept")
	})
}

// end ends a task that counts, and returns the numbers it said.
func end(k *task) []int {
	k.t.Helper()
	k.kill("", unix.SIGKILL, true)
	if code := k.wait(""); code != 137 {
		k.t.Errorf("task %q ended with code %d", k.id, code)
	}
	text := <-k.output
	var out []int
	for line := range strings.FieldsSeq(text) {
		if n, err := strconv.Atoi(line); err == nil {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		k.t.Fatalf("task %q has said nothing: %q", k.id, text)
	}
	return out
}
