package hostile

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var seed = flag.Uint64("seed", 1, "of what is asked at random")

const (
	requests    = 1000
	longestText = 9 << 10 // of an error, in bytes
	mostMemory  = 768 << 10
)

// A thousand requests with something extreme in them are each answered soon, with an error that has
// a class where it is one, and leave nothing behind; the daemon's memory stays bounded.
func TestRequestsWithExtremes(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	n.pull(world.guest)
	m := &mutator{Rand: rand.New(rand.NewPCG(*seed, 0)), texts: texts(t.TempDir())}
	for _, text := range m.texts {
		removeParents(t, text, short(text))
	}
	pods := map[string]*pod{"runc": n.run("runc"), "wasm": n.run("wasm")}
	answers := map[codes.Code]int{}
	for i := range requests {
		handler := []string{"runc", "wasm"}[i%2]
		name, call := m.request(n, pods[handler], handler)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		err := call(ctx)
		cancel()
		code, text := grpcstatus.Code(err), grpcstatus.Convert(err).Message()
		answers[code]++
		switch {
		case !n.Alive():
			t.Fatalf("request %d, %s (%s) ended the daemon: %v\n%.20000s", i, name, m.what, err, n.DaemonLog())
		case code == codes.Unknown || code == codes.Internal || code == codes.DeadlineExceeded:
			t.Errorf("request %d, %s (%s): after %v: %.400v", i, name, m.what, time.Since(begun), err)
		case err != nil && (text == "" || len(text) > longestText):
			t.Errorf("request %d, %s (%s): a text of %d bytes", i, name, m.what, len(text))
		}
	}
	t.Logf("answers: %v", answers)
	if answers[codes.InvalidArgument] < requests/10 {
		t.Errorf("only %d requests are refused", answers[codes.InvalidArgument])
	}
	for _, p := range pods {
		p.start(sh("true")).wait()
	}
	if peak := n.mostMemory() >> 10; peak > mostMemory {
		t.Errorf("the daemon has taken %d KiB of memory", peak)
	}
}

// removeParents removes the cgroups with these names in the end, unless they were there: the parent
// of a pod that its client names is the client's to remove.
func removeParents(t *testing.T, names ...string) {
	t.Helper()
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, hierarchy := range append(hierarchies, "/sys/fs/cgroup") {
		for _, name := range names {
			first, _, _ := strings.Cut(strings.TrimLeft(name, "/"), "/")
			top := filepath.Join(hierarchy, first)
			if _, err := os.Lstat(top); filepath.Dir(top) != hierarchy || !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			t.Cleanup(func() {
				var dirs []string
				_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						dirs = append(dirs, path)
					}
					return nil
				})
				for _, dir := range slices.Backward(dirs) {
					if err := os.Remove(dir); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// mutator makes requests with extremes.
type mutator struct {
	*rand.Rand
	texts []string
	what  string // what was changed in the last request
	room  int    // bytes that may still come to it, for a request of more than 16 MiB does not arrive
}

// request is a valid request with up to three changes. What it makes, it removes again.
func (m *mutator) request(n *target, p *pod, handler string) (string, func(context.Context) error) {
	pick := m.IntN(10)
	switch {
	case pick < 4:
		config := n.podConfig()
		m.change(config)
		return "RunPodSandbox", func(ctx context.Context) error {
			answer, err := n.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
			if err != nil {
				return err
			}
			n.Ran(answer.GetPodSandboxId())
			_, err = n.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: answer.GetPodSandboxId()})
			return err
		}
	case pick < 8:
		config := sh("true")
		if handler == "wasm" && m.IntN(2) == 0 {
			config = of(world.guest)
		}
		m.change(config)
		return "CreateContainer", func(ctx context.Context) error {
			answer, err := n.CreateContainer(ctx, &runtime.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
			if err != nil {
				return err
			}
			_, err = n.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: answer.GetContainerId()})
			return err
		}
	}
	return m.other(n, p)
}

// other is a request that makes nothing.
func (m *mutator) other(n *target, p *pod) (string, func(context.Context) error) {
	switch m.IntN(7) {
	case 0:
		r := &runtime.ExecSyncRequest{ContainerId: p.id, Cmd: []string{"true"}}
		m.change(r)
		return "ExecSync", func(ctx context.Context) error { _, err := n.ExecSync(ctx, r); return err }
	case 1:
		r := &runtime.UpdateContainerResourcesRequest{ContainerId: p.id, Linux: &runtime.LinuxContainerResources{}}
		m.change(r)
		return "UpdateContainerResources", func(ctx context.Context) error { _, err := n.UpdateContainerResources(ctx, r); return err }
	case 2:
		r := &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{LabelSelector: map[string]string{"a": "b"}}}
		m.change(r)
		return "ListContainers", func(ctx context.Context) error { _, err := n.ListContainers(ctx, r); return err }
	case 3:
		r := &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: world.busybox}}
		m.change(r)
		return "ImageStatus", func(ctx context.Context) error { _, err := n.ImageStatus(ctx, r); return err }
	case 4:
		r := &runtime.PortForwardRequest{PodSandboxId: p.id, Port: []int32{80}}
		m.change(r)
		return "PortForward", func(ctx context.Context) error { _, err := n.PortForward(ctx, r); return err }
	case 5:
		r := &runtime.StopContainerRequest{ContainerId: "none", Timeout: 1}
		m.change(r)
		return "StopContainer", func(ctx context.Context) error { _, err := n.StopContainer(ctx, r); return err }
	}
	r := &runtime.PodSandboxStatusRequest{PodSandboxId: p.id}
	m.change(r)
	return "PodSandboxStatus", func(ctx context.Context) error { _, err := n.PodSandboxStatus(ctx, r); return err }
}

// change sets fields of a message, or of those in it, to something extreme.
func (m *mutator) change(message proto.Message) {
	m.what, m.room = "", 8<<20
	for range 1 + m.IntN(3) {
		m.set(message.ProtoReflect(), "")
	}
}

func (m *mutator) set(message protoreflect.Message, path string) {
	fields := message.Descriptor().Fields()
	if fields.Len() == 0 {
		return
	}
	field := fields.Get(m.IntN(fields.Len()))
	path += "." + string(field.Name())
	switch {
	case field.IsMap():
		m.fill(message.Mutable(field).Map(), field, path)
	case field.IsList():
		list := message.Mutable(field).List()
		for range m.many() {
			if field.Kind() == protoreflect.MessageKind {
				e := list.NewElement()
				m.set(e.Message(), path)
				list.Append(e)
			} else {
				list.Append(m.value(field, path))
			}
			if len(m.what) > 2000 {
				m.what = m.what[:2000]
			}
		}
	case field.Kind() == protoreflect.MessageKind:
		if m.IntN(8) == 0 {
			message.Clear(field)
			m.what += " without " + path
			return
		}
		m.set(message.Mutable(field).Message(), path)
	default:
		message.Set(field, m.value(field, path))
	}
}

// fill gives a map one or many entries. All maps of these messages have text for keys.
func (m *mutator) fill(entries protoreflect.Map, field protoreflect.FieldDescriptor, path string) {
	for i := range m.many() {
		key := m.text()
		if i > 0 {
			key = strconv.Itoa(i)
		}
		value := field.MapValue()
		if value.Kind() == protoreflect.MessageKind {
			return
		}
		entries.Set(protoreflect.ValueOfString(key).MapKey(), m.value(value, ""))
	}
	m.what += " entries of " + path
}

func (m *mutator) value(field protoreflect.FieldDescriptor, path string) protoreflect.Value {
	if path != "" && len(m.what) < 2000 {
		m.what += " " + path
	}
	number := []int64{math.MinInt64, math.MinInt32, -1000, -1, 0, 1, 1001, 65536, math.MaxInt32, math.MaxInt64}[m.IntN(10)]
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(m.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(number))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(number)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(number))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(math.Inf(int(number)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(m.text()))
	}
	return protoreflect.ValueOfString(m.text())
}

// many is how many entries something gets.
func (m *mutator) many() int {
	n := []int{1, 2, 3000}[m.IntN(3)]
	if m.room < 0 {
		n = 1
	}
	m.room -= n * 300
	return n
}

func (m *mutator) text() string {
	text := m.texts[m.IntN(len(m.texts))]
	if m.room -= len(text); m.room < 0 && len(text) > 64 {
		return short(text)
	}
	return text
}

func short(text string) string { return text[:min(len(text), 8)] }

// texts are those that no honest client sends. Paths lead into the test's own folder, or to
// nothing.
func texts(dir string) []string {
	return []string{
		"", " ", "\x00", "a\x00b", "\n", "../../../../../../../../nowhere", "/proc/self/fd/0", "/proc/nowhere", "-1", "%s%n", "a/../../b", "..",
		strings.Repeat("x", 64), strings.Repeat("x", 256), strings.Repeat("x", 4097), strings.Repeat("/x", 3000), strings.Repeat("é", 200),
		strings.Repeat("y", 1<<20), filepath.Join(dir, "none"), filepath.Join(dir, strings.Repeat("z", 300)), "😀", "\u202e", "::1", "99999999999999999999",
	}
}
