package server

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

func TestSandboxStatus(t *testing.T) {
	rec := state.Sandbox{
		ID: "p", Phase: state.Ready, CreatedAt: time.Unix(1, 2), Handler: "wasm",
		Config: state.PodConfig{Value: &runtime.PodSandboxConfig{
			Metadata: &runtime.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u", Attempt: 3},
			Labels:   map[string]string{"l": "v"},
		}},
		Network: state.Network{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}},
	}
	s := sandboxStatus(rec)
	if s.GetState() != runtime.PodSandboxState_SANDBOX_READY || s.GetCreatedAt() != 1_000_000_002 || s.GetRuntimeHandler() != "wasm" ||
		s.GetNetwork().GetIp() != "10.0.0.2" || len(s.GetNetwork().GetAdditionalIps()) != 1 || s.GetLabels()["l"] != "v" ||
		s.GetLinux().GetNamespaces().GetOptions() == nil {
		t.Errorf("%v", s)
	}
	for _, phase := range []state.Phase{state.NotReady, state.Stopped} {
		rec.Phase = phase
		if sandboxStatus(rec).GetState() != runtime.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("%s is ready", phase)
		}
	}
}

func TestContainerStatus(t *testing.T) {
	mounts := []*runtime.Mount{{ContainerPath: "/a", HostPath: "/b"}}
	rec := state.Container{
		ID: "c", SandboxID: "p", Phase: state.Exited, CreatedAt: time.Unix(1, 0), StartedAt: time.Unix(2, 0), FinishedAt: time.Unix(3, 0),
		ExitCode: 137, Reason: "OOMKilled", Message: "m", ImageID: "sha256:i", ImageName: "repo:tag", ImageRef: "repo@sha256:d",
		StopSignal: "SIGQUIT", LogPath: "/l", User: state.User{UID: 1, GID: 2, Groups: []uint32{2, 3}},
		Config: state.ContainerConfig{Value: &runtime.ContainerConfig{
			Metadata: &runtime.ContainerMetadata{Name: "n"}, Mounts: mounts, Image: &runtime.ImageSpec{Image: "sha256:i", UserSpecifiedImage: "repo:tag"},
		}},
		Resources: state.Resources{Value: &runtime.LinuxContainerResources{CpuShares: 5}},
	}
	s := containerStatus(rec)
	if s.GetState() != runtime.ContainerState_CONTAINER_EXITED || s.GetImageId() != "sha256:i" || s.GetImageRef() != "repo@sha256:d" ||
		s.GetImage().GetImage() != "repo:tag" || s.GetStopSignal() != runtime.Signal_SIGNAL_SIGQUIT || len(s.GetMounts()) != 1 ||
		s.GetResources().GetLinux().GetCpuShares() != 5 || !reflect.DeepEqual(s.GetUser().GetLinux().GetSupplementalGroups(), []int64{2, 3}) {
		t.Errorf("%v", s)
	}
	if i := containerItem(rec); i.GetImageId() != "sha256:i" || i.GetImageRef() != "sha256:i" || i.GetImage() == nil {
		t.Errorf("%v", i)
	}
	rec.Phase, rec.StartedAt, rec.FinishedAt = state.Created, time.Time{}, time.Time{}
	if s := containerStatus(rec); s.GetStartedAt() != 0 || s.GetFinishedAt() != 0 || s.GetState() != runtime.ContainerState_CONTAINER_CREATED {
		t.Errorf("%v", s)
	}
	rec.Phase = state.Unknown
	if s := containerStatus(rec); s.GetState() != runtime.ContainerState_CONTAINER_UNKNOWN {
		t.Errorf("%v", s)
	}
}

func TestImageUser(t *testing.T) {
	for _, c := range []struct {
		user, name string
		uid        int64
	}{{"1002", "", 1002}, {"www-data", "www-data", 0}, {"1003:1004", "", 1003}, {"www-data:1004", "www-data", 0}, {"", "", 0}} {
		item := imageItem(images.Image{Config: ocispec.ImageConfig{User: c.user}})
		if item.GetUsername() != c.name || item.GetUid().GetValue() != c.uid {
			t.Errorf("%q: %v", c.user, item)
		}
	}
}

func TestSpecHandler(t *testing.T) {
	for _, tt := range []struct {
		handlers    []string
		asked, want string
	}{
		{[]string{"runc"}, "", ""},
		{[]string{"runc", "wasm"}, "", ""},
		{[]string{"runc", "wasm"}, "wasm", "wasm"},
		{[]string{"wasm"}, "", "wasm"},
		{[]string{"wasm", "wasm2"}, "wasm2", "wasm2"},
		{[]string{"wasm"}, "runc", "wasm"}, // by id, an image is found for any handler
		{nil, "", ""},                      // chosen by a configuration of the past
	} {
		if got := specHandler(tt.handlers, tt.asked, "runc"); got != tt.want {
			t.Errorf("%q asked for %q: %q, want %q", tt.handlers, tt.asked, got, tt.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for _, c := range []struct {
		in   int64
		want time.Duration
	}{{-5, 0}, {0, 0}, {3, 3 * time.Second}, {1 << 62, 9223372036 * time.Second}} {
		if got := seconds(c.in); got != c.want {
			t.Errorf("%d: %s", c.in, got)
		}
	}
}

// A message of a stream has some items, not too many, and no more bytes than clients take.
func TestBatches(t *testing.T) {
	sizes := func(items []*runtime.PodSandbox) []int {
		t.Helper()
		out, all := []int{}, 0
		err := inBatches(items, func(part []*runtime.PodSandbox) error {
			if size := proto.Size(&runtime.StreamPodSandboxesResponse{PodSandboxes: part}); len(part) > 1 && size > batchBytes+batchBytes/4 {
				t.Errorf("a message of %d items has %d bytes", len(part), size)
			}
			for i, item := range part {
				if item != items[all+i] {
					t.Fatal("items are out of order")
				}
			}
			out, all = append(out, len(part)), all+len(part)
			return nil
		})
		if err != nil || all != len(items) {
			t.Errorf("%d of %d items, %v", all, len(items), err)
		}
		return out
	}
	pods := func(n, annotation int) []*runtime.PodSandbox {
		var out []*runtime.PodSandbox
		for range n {
			out = append(out, &runtime.PodSandbox{Annotations: map[string]string{"a": strings.Repeat("x", annotation)}})
		}
		return out
	}
	for _, c := range []struct {
		items []*runtime.PodSandbox
		want  []int
	}{
		{nil, []int{}},
		{pods(1, 0), []int{1}},
		{pods(2*batch+1, 0), []int{batch, batch, 1}},
		{pods(40, 256<<10), []int{15, 15, 10}},
		{pods(2, 2*batchBytes), []int{1, 1}},
		{append(pods(3, 0), pods(1, 2*batchBytes)...), []int{3, 1}},
	} {
		if got := sizes(c.items); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	gone := errors.New("gone")
	if err := inBatches(pods(2*batch, 0), func([]*runtime.PodSandbox) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

func TestFilters(t *testing.T) {
	have := map[string]string{"a": "1", "b": ""}
	for _, c := range []struct {
		id   string
		want map[string]string
		ok   bool
	}{
		{"", nil, true}, {"ab", nil, true}, {"abc", nil, true}, {"abcd", nil, false}, {"b", nil, false},
		{"", map[string]string{"a": "1"}, true}, {"", map[string]string{"a": "2"}, false}, {"", map[string]string{"c": ""}, false},
		{"a", map[string]string{"b": ""}, true}, {"a", map[string]string{"a": "1", "c": "1"}, false}, {"b", map[string]string{"b": ""}, false},
	} {
		if matches(&runtime.ContainerFilter{Id: c.id, LabelSelector: c.want}, "abc", have) != c.ok {
			t.Errorf("%q %v", c.id, c.want)
		}
	}
	if !matches((*runtime.PodSandboxFilter)(nil), "abc", nil) {
		t.Error("no filter at all")
	}
	if got := items([]int{1, 2, 3}, func(n int) bool { return n > 1 }, func(n int) string { return fmt.Sprint(n) }); !reflect.DeepEqual(got, []string{"2", "3"}) {
		t.Errorf("%q", got)
	}
	if got := items(nil, func(int) bool { return true }, func(n int) int { return n }); got == nil || len(got) != 0 {
		t.Errorf("%#v", got)
	}
}

// A handler has what the kernel and its OCI runtime have, a handler for guests also without a
// runtime.
func TestFeatures(t *testing.T) {
	host := spec.Host{RecursiveReadOnly: true, IDMappedMounts: true}
	known := map[string]ociruntime.Report{"new": {Features: ociruntime.Features{RecursiveReadOnly: true}}, "old": {}, "none": {Missing: true}}
	report := func(binary string) ociruntime.Report { return known[binary] }
	for _, c := range []struct {
		binary string
		kind   runtimeclass.Type
		rro    bool
	}{
		{"new", runtimeclass.OCI, true}, {"old", runtimeclass.OCI, false}, {"none", runtimeclass.OCI, false},
		{"new", runtimeclass.WASM, true}, {"old", runtimeclass.WASM, false}, {"none", runtimeclass.WASM, true},
	} {
		a := &nodeAPI{o: Options{Host: host, Runtime: report}}
		h := runtimeclass.Handler{Binary: c.binary, Type: c.kind}
		if got := a.features(h).GetRecursiveReadOnlyMounts(); got != c.rro {
			t.Errorf("%s %s: %v", c.kind, c.binary, got)
		}
		a.o.Host.RecursiveReadOnly = false
		if a.features(h).GetRecursiveReadOnlyMounts() {
			t.Errorf("%s %s: without the kernel", c.kind, c.binary)
		}
	}
}
