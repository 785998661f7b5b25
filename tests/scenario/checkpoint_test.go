package scenario

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/tests/node"
)

// fakeCRIU puts a criu in front of the machine's own, for servers that are started after it.
func fakeCRIU(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "criu"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Checkpoints are refused with what is wrong or missing, and nothing is written.
func TestCheckpointsAreRefused(t *testing.T) {
	fakeCRIU(t, "echo 'Error (criu/x.c:1): this kernel lacks it' >&2; exit 1\n")
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	oci, wasm := m.run("runc"), m.run("wasm")
	running, ended := oci.begin(sh("sleep 1000")), oci.begin(sh("exit 0"))
	guest := wasm.begin(containerConfig(world.Guest, "idle"))
	ended.wait()
	folder, full := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	location := filepath.Join(folder, "archive.tar")
	missing := []codes.Code{codes.FailedPrecondition}
	one := func(id, location string) error {
		_, err := m.CheckpointContainer(t.Context(), &runtime.CheckpointContainerRequest{ContainerId: id, Location: location})
		return err
	}
	deadline, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for all that is asked below
	defer cancel()
	pod := func(ctx context.Context, id, path string, options map[string]string, containers ...string) error {
		_, err := m.CheckpointPod(ctx, &runtime.CheckpointPodRequest{PodSandboxId: id, OutputPath: path, ContainerIds: containers, Options: options})
		return err
	}
	restore := func(change func(*runtime.RestorePodRequest)) error {
		r := &runtime.RestorePodRequest{
			CheckpointPath: folder, Config: m.podConfig("restored"), ContainerConfigs: []*runtime.ContainerConfig{sh("true")},
		}
		r.ContainerConfigs[0].Metadata.Name = "main"
		change(r)
		_, err := m.RestorePod(deadline, r)
		return err
	}
	_, noDeadline := m.RestorePod(t.Context(), &runtime.RestorePodRequest{CheckpointPath: folder, Config: m.podConfig("restored")})
	saved := t.TempDir()
	if err := os.WriteFile(filepath.Join(saved, "pod.options"), []byte(`{"version": 1, "containers": {"main": "x"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		err  error
		text string
		want []codes.Code
	}{
		{"container that is not there", one(strings.Repeat("0", 64), location), "", []codes.Code{codes.NotFound}},
		{"container that has ended", one(ended.id, location), "exited", missing[:1]},
		{"relative location", one(running.id, "archive.tar"), "archive.tar", []codes.Code{codes.InvalidArgument}},
		{"guest", one(guest.id, location), "WebAssembly", missing[:1]},
		{"container", one(running.id, location), "this kernel lacks it", missing},
		{"pod that is not there", pod(deadline, strings.Repeat("0", 64), folder, nil, running.id), "", []codes.Code{codes.NotFound}},
		{"pod without deadline", pod(t.Context(), oci.id, folder, nil, running.id), "deadline", []codes.Code{codes.InvalidArgument}},
		{"option", pod(deadline, oci.id, folder, map[string]string{"x": "y"}, running.id), `"x"`, []codes.Code{codes.InvalidArgument}},
		{"full folder", pod(deadline, oci.id, full, nil, running.id), "not empty", []codes.Code{codes.InvalidArgument}},
		{"ended container", pod(deadline, oci.id, folder, nil, running.id, ended.id), "", []codes.Code{codes.InvalidArgument}},
		{"no containers", pod(deadline, oci.id, folder, nil), "", []codes.Code{codes.InvalidArgument}},
		{"pod of guests", pod(deadline, wasm.id, folder, nil, guest.id), "WebAssembly", missing[:1]},
		{"pod", pod(deadline, oci.id, folder, nil, running.id), "this kernel lacks it", missing},
		{"restore without deadline", noDeadline, "deadline", []codes.Code{codes.InvalidArgument}},
		{"restore by an unknown handler", restore(func(r *runtime.RestorePodRequest) { r.RuntimeHandler = "none" }), "none", []codes.Code{codes.InvalidArgument}},
		{"restore without containers", restore(func(r *runtime.RestorePodRequest) { r.ContainerConfigs = nil }), "", []codes.Code{codes.InvalidArgument}},
		{"restore two of a name", restore(func(r *runtime.RestorePodRequest) {
			r.ContainerConfigs = append(r.ContainerConfigs, r.ContainerConfigs[0])
		}), "twice", []codes.Code{codes.InvalidArgument}},
		{"restore from nowhere", restore(func(r *runtime.RestorePodRequest) { r.CheckpointPath = filepath.Join(folder, "none") }), "", []codes.Code{codes.InvalidArgument}},
		{"restore a guest", restore(func(r *runtime.RestorePodRequest) { r.RuntimeHandler = "wasm" }), "WebAssembly", missing[:1]},
		{"restore from an empty folder", restore(func(*runtime.RestorePodRequest) {}), "pod.options", []codes.Code{codes.InvalidArgument}},
		{"restore", restore(func(r *runtime.RestorePodRequest) { r.CheckpointPath = saved }), "this kernel lacks it", missing},
		{"restore other containers", restore(func(r *runtime.RestorePodRequest) {
			r.CheckpointPath, r.ContainerConfigs[0].Metadata.Name = saved, "other"
		}), `["other"]`, []codes.Code{codes.InvalidArgument}},
	} {
		if !slices.Contains(c.want, grpcstatus.Code(c.err)) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.what, c.err, c.want, c.text)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
	for _, c := range []*container{running, guest} {
		if got := c.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("a container is %v", got)
		}
	}
}

// A checkpoint that fails, or takes too long, leaves the container running and nothing behind.
func TestCheckpointFails(t *testing.T) {
	// It passes its check. Asked to work by runc it fails, or waits until runc has gone, and leaves
	// the freezer in the file named as it was, a while later: the real one does that at its end.
	// Until then it is in another folder, as where it looks at the container's mounts, and has its
	// own open.
	wait := filepath.Join(t.TempDir(), "wait")
	fakeCRIU(t, "[ \"$1\" != check ] || exit 0\nfile=$(cat "+wait+" 2>/dev/null) || exit 1\nwas=$(cat $file)\nexec 9<. && cd /\n"+
		"while kill -0 $PPID 2>/dev/null; do sleep 0.1; done\nsleep 1\necho $was >$file\necho >>"+wait+".ended\n")
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	c := p.begin(sh(counting))
	folder := t.TempDir()
	ends := 0 // of CRIU, after the answer
	goesOn := func() {
		t.Helper()
		if !node.Within(node.Patience, func() bool { said, _ := os.ReadFile(wait + ".ended"); return len(said) >= ends }) {
			t.Error("criu has not ended")
		}
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
			t.Errorf("left in the folder: %v, %v", entries, err)
		}
		if entries, err := os.ReadDir(filepath.Join(m.Root, "checkpoints")); err != nil || len(entries) != 0 {
			t.Errorf("left in the folder of checkpoints: %v, %v", entries, err)
		}
		c.counts(0)
	}
	c.counts(0)
	_, err := m.CheckpointContainer(t.Context(), &runtime.CheckpointContainerRequest{ContainerId: c.id, Location: filepath.Join(folder, "a.tar")})
	if grpcstatus.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "criu") {
		t.Errorf("a criu that ends: %v", err)
	}
	goesOn()
	other := m.run("crun").begin(sh(counting)) // says in its own words that CRIU fails, or that it was built without
	_, err = m.CheckpointContainer(t.Context(), &runtime.CheckpointContainerRequest{ContainerId: other.id, Location: filepath.Join(folder, "a.tar")})
	if grpcstatus.Code(err) != codes.FailedPrecondition || strings.Contains(err.Error(), "exit status") {
		t.Errorf("crun: %v", err)
	}
	other.counts(0)
	goesOn()
	group, err := cgroup.Open(node.ContainerCgroup(p.id, c.id))
	if err != nil {
		t.Fatal(err)
	}
	freezer := group.File("freezer", map[bool]string{false: "freezer.state", true: "cgroup.freeze"}[group.Unified()])
	if err := os.WriteFile(wait, []byte(freezer), 0o600); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	_, err = m.CheckpointContainer(t.Context(), &runtime.CheckpointContainerRequest{ContainerId: c.id, Location: filepath.Join(folder, "a.tar"), Timeout: 1})
	ends++
	if took := time.Since(begun); grpcstatus.Code(err) != codes.DeadlineExceeded || took < time.Second {
		t.Errorf("a criu that waits: %v after %v", err, took)
	}
	goesOn()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = m.CheckpointPod(ctx, &runtime.CheckpointPodRequest{PodSandboxId: p.id, OutputPath: folder, ContainerIds: []string{c.id}})
	ends++
	if grpcstatus.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a pod, with a criu that waits: %v", err)
	}
	node.Within(node.Patience, func() bool { // the server is through when the pod goes on
		entries, err := os.ReadDir(filepath.Join(m.Root, "checkpoints"))
		return err == nil && len(entries) == 0
	})
	goesOn()

	// A server that dies meanwhile leaves a paused container; the next one lets it go on.
	dies := make(chan error, 1)
	checkpoint := func() {
		t.Helper()
		go func() {
			_, err := m.CheckpointContainer(context.WithoutCancel(t.Context()), &runtime.CheckpointContainerRequest{ContainerId: c.id, Location: filepath.Join(folder, "a.tar")})
			dies <- err
		}()
		if !node.Within(node.Patience, func() bool {
			entries, err := os.ReadDir(filepath.Join(m.Root, "checkpoints"))
			return err == nil && len(entries) > 0
		}) {
			t.Fatal("no checkpoint has begun")
		}
		time.Sleep(300 * time.Millisecond)
		ends++
	}
	checkpoint()
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-dies
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	goesOn()

	// A shim that dies meanwhile leaves CRIU too; its successor lets the container go on after that.
	// Any container's program may have CRIU's name.
	namesake := m.run("runc").begin(sh("printf criu >/proc/self/comm; " + counting))
	namesake.counts(0)
	checkpoint()
	p.killSharedShim()
	if err := <-dies; err == nil {
		t.Error("a checkpoint whose shim has died: no error")
	}
	goesOn()
	namesake.counts(0)
}

// counting is a program whose place can be seen: in its log, and in a file of its root filesystem.
const counting = "echo begun; rm -f /etc/group; i=0; while true; do i=$((i+1)); echo $i; echo $i >/count; sleep 0.05; done"

// counts waits until the program counts on from more than a number, and returns where it is.
func (c *container) counts(above int) int {
	c.t.Helper()
	first, counts := node.Counts(c.t.Context(), c, c.id, "/count", above)
	if first <= above {
		c.t.Fatalf("it does not count above %d: %v\n%s", above, c.status(), c.DaemonLog())
	}
	if !counts {
		c.t.Fatalf("it stands still at %d", first)
	}
	return first
}

// needCRIU leaves a test out where CRIU does not work, and says why.
func needCRIU(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("criu", "check").CombinedOutput(); err != nil {
		t.Skipf("not run: criu check: %v\n%s", err, out)
	}
}

// A container's checkpoint is an archive as other runtimes write it, and a container made from it
// goes on where it was.
func TestCheckpointContainer(t *testing.T) {
	needCRIU(t)
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	c := p.begin(sh(counting))
	at := c.counts(20)
	folder := t.TempDir()
	location := filepath.Join(folder, "archive.tar")
	if _, err := m.CheckpointContainer(t.Context(), &runtime.CheckpointContainerRequest{ContainerId: c.id, Location: location, Timeout: 60}); err != nil {
		t.Fatalf("checkpoint: %v\n%s", err, p.shimLog())
	}
	c.counts(at)
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("in the folder: %v, %v", entries, err)
	}
	if info, err := os.Stat(location); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	names, err := exec.Command("tar", "-tf", location).Output()
	for _, want := range []string{"config.dump", "spec.dump", "status.dump", "checkpoint/inventory.img", "checkpoint/descriptors.json", "rootfs-diff.tar", "deleted.files", "container.log", "dump.log"} {
		if err != nil || !slices.Contains(strings.Fields(string(names)), want) {
			t.Errorf("the archive has no %s: %s, %v", want, names, err)
		}
	}
	c.stop(0)

	other := m.run("runc")
	config := sh("exit 7") // the program is the checkpoint's
	config.Image = &runtime.ImageSpec{Image: location}
	again := other.create(config)
	if st := again.status(); st.GetState() != runtime.ContainerState_CONTAINER_CREATED || st.GetImage().GetImage() != c.status().GetImage().GetImage() {
		t.Errorf("the restored container is %v", st)
	}
	again.start()
	again.counts(at)
	again.inItsCgroup()
	if text := again.text(); strings.Contains(text, "begun") {
		t.Errorf("it has begun anew: %q", text)
	}
	answer, err := m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: again.id, Cmd: []string{"ls", "/etc"}, Timeout: 10})
	if err != nil || strings.Contains(string(answer.GetStdout()), "group") {
		t.Errorf("a file that was removed: %q, %v", answer.GetStdout(), err)
	}
	again.stop(0)
	again.expectEnd(137, "Error")
	if entries, err := os.ReadDir(filepath.Join(m.Root, "checkpoints")); err != nil || len(entries) != 0 {
		t.Errorf("left in the folder of checkpoints: %v, %v", entries, err)
	}
	config.Metadata.Attempt++
	never := other.create(config)
	if _, err := m.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: never.id}); err != nil {
		t.Error(err)
	}
}

// A pod is restored with containers that wait for their start; what does not fit is refused and
// leaves nothing.
func TestCheckpointPod(t *testing.T) {
	needCRIU(t)
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	configs := []*runtime.ContainerConfig{sh(counting), sh(counting)}
	var ids []string
	var places []int
	for _, config := range configs {
		c := p.begin(config)
		ids, places = append(ids, c.id), append(places, c.counts(5))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	folder := t.TempDir()
	if _, err := m.CheckpointPod(ctx, &runtime.CheckpointPodRequest{PodSandboxId: p.id, OutputPath: folder, ContainerIds: ids}); err != nil {
		t.Fatalf("checkpoint: %v\n%s", err, p.shimLog())
	}
	for i, id := range ids {
		(&container{pod: p, id: id}).counts(places[i])
	}
	p.remove()

	sandboxes := func() int {
		list, err := m.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.GetItems())
	}
	for what, change := range map[string]func(*runtime.ContainerConfig){
		"command":     func(c *runtime.ContainerConfig) { c.Command = []string{"/bin/sh", "-c", "exit 7"} },
		"environment": func(c *runtime.ContainerConfig) { c.Envs = []*runtime.KeyValue{{Key: "A", Value: []byte("b")}} },
		"tty":         func(c *runtime.ContainerConfig) { c.Tty = true },
	} {
		other := proto.Clone(configs[1]).(*runtime.ContainerConfig)
		change(other)
		config := m.podConfig("pod")
		_, err := m.RestorePod(ctx, &runtime.RestorePodRequest{CheckpointPath: folder, Config: config, ContainerConfigs: []*runtime.ContainerConfig{configs[0], other}})
		if grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), what) || sandboxes() != 0 {
			t.Errorf("another %s: %v, %d pods are left", what, err, sandboxes())
		}
	}
	config := m.podConfig("pod")
	answer, err := m.RestorePod(ctx, &runtime.RestorePodRequest{CheckpointPath: folder, Config: config, ContainerConfigs: configs})
	if err != nil || len(answer.GetRestoredContainers()) != 2 {
		t.Fatalf("restore: %v, %v", answer, err)
	}
	restored := &pod{machine: m, id: answer.GetPodSandboxId(), handler: "runc", config: config}
	m.Ran(restored.id)
	for i, r := range answer.GetRestoredContainers() {
		c := &container{pod: restored, id: r.GetContainerId(), config: configs[i], log: filepath.Join(config.GetLogDirectory(), configs[i].GetLogPath())}
		if r.GetName() != configs[i].GetMetadata().GetName() || c.status().GetState() != runtime.ContainerState_CONTAINER_CREATED {
			t.Errorf("container %d: %v, %v", i, r, c.status())
		}
		if err := os.MkdirAll(filepath.Dir(c.log), 0o755); err != nil {
			t.Fatal(err)
		}
		c.start()
		c.counts(places[i])
	}
}

// The node's range of pod addresses is what the embedded network gives them.
func TestUpdateRuntimeConfig(t *testing.T) {
	m := start(t)
	for _, config := range []*runtime.RuntimeConfig{
		nil, {}, {NetworkConfig: &runtime.NetworkConfig{}},
		{NetworkConfig: &runtime.NetworkConfig{PodCidr: "10.244.1.0/24"}},
		{NetworkConfig: &runtime.NetworkConfig{PodCidr: "10.244.1.0/24,fd00:244:1::/64"}},
	} {
		if _, err := m.UpdateRuntimeConfig(t.Context(), &runtime.UpdateRuntimeConfigRequest{RuntimeConfig: config}); err != nil {
			t.Errorf("%v: %v", config, err)
		}
	}
	_, err := m.UpdateRuntimeConfig(t.Context(), &runtime.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtime.RuntimeConfig{NetworkConfig: &runtime.NetworkConfig{PodCidr: "10.244.1.7/24"}},
	})
	if grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("a range with host bits: %v", err)
	}
	m.pull(world.Busybox)
	if ip := m.run("runc").ip(); !strings.HasPrefix(ip, "10.244.1.") {
		t.Errorf("address %q is not in the node's range", ip)
	}
}
