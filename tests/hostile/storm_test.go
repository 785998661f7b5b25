package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// A dozen clients ask for forty seconds, at random, for all that a pod can have done to it, under
// both handlers, and leave in the middle of a third of what they asked for. No request may fail for
// a reason that nobody knows, and nothing may be left.
func TestStormOfRequestsAndCancels(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	n.pull(world.guest)
	s := &storm{target: n, pods: map[string]string{}, handlers: []string{"runc", "wasm"}, images: []string{world.busybox, world.guest}}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(*seed, uint64(i)))
			for ctx.Err() == nil {
				s.ask(ctx, random)
			}
		})
	}
	clients.Wait()
	t.Logf("%d requests, %d of them given up", s.asked.Load(), s.left.Load())
	if s.asked.Load() < 100 {
		t.Errorf("only %d requests in forty seconds", s.asked.Load())
	}
	// What a client has left may still be undone, which nobody answers for.
	if !node.Within(node.Patience, func() bool { return n.Sound() == nil }) {
		err := n.Sound()
		t.Errorf("%v\nof that, the log has\n%s", err, n.logOf(err.Error()))
	}
	n.check(n.RemovePods(n.within(3 * time.Minute)))
	n.check(n.Sound())
}

// ids are those of pods and containers.
var ids = regexp.MustCompile("[0-9a-f]{64}")

// logOf is what the daemon has logged about the pods and containers that a text names.
func (n *target) logOf(text string) string {
	var b strings.Builder
	named := ids.FindAllString(text, -1)
	for line := range strings.Lines(n.DaemonLog()) {
		if slices.ContainsFunc(named, func(id string) bool { return strings.Contains(line, id) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// storm is what its clients share.
type storm struct {
	*target
	asked, left atomic.Int64

	handlers []string
	images   []string // that are pulled and removed; those of a faulty one are busybox images
	// faulty says that processes are killed meanwhile, and requests with them.
	faulty bool
	lines  string // file with the lines that a guest of a faulty one may write

	mu       sync.Mutex
	pods     map[string]string // handler by id
	half     []halfRemoved
	refusals map[string]int // what was said of requests that failed so, without ids
}

// halfRemoved is a pod, or a container, whose removal did not succeed or had no answer. Kubelets
// ask again.
type halfRemoved struct{ pod, container string }

// ask makes one request.
func (s *storm) ask(ctx context.Context, random *rand.Rand) {
	gone := random.IntN(3) == 0
	limit := node.Slow(3 * time.Minute)
	if gone {
		limit = time.Duration(random.IntN(150)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	name, err := s.request(ctx, random)
	s.asked.Add(1)
	code := grpcstatus.Code(err)
	// The server may know of the deadline before this context does.
	if ctx.Err() != nil || gone && code == codes.DeadlineExceeded {
		s.left.Add(1)
		if !gone {
			s.t.Errorf("%s hangs: %v", name, err)
		}
		return
	}
	switch code {
	case codes.OK, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists:
	case codes.Unavailable, codes.Canceled, codes.InvalidArgument: // the pod goes while it is asked for
	default:
		if !s.faulty {
			s.t.Errorf("%s: %v", name, err)
			return
		}
		if strings.Contains(err.Error(), "read-only file system") && !strings.Contains(err.Error(), "runc run failed") {
			s.t.Errorf("%s is refused without a class: %v", name, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refusals[fmt.Sprintf("%s: %s", name, numbers.ReplaceAllString(err.Error(), "N"))]++
	}
}

// numbers are what differs between two texts about the same.
var numbers = regexp.MustCompile("[0-9a-f]{8,}|[0-9]+")

// request is one of a kubelet's, about what there is.
func (s *storm) request(ctx context.Context, random *rand.Rand) (string, error) {
	pod, handler := s.anyPod(random)
	if pod == "" || random.IntN(6) == 0 {
		return s.runPod(ctx, random)
	}
	switch random.IntN(12) {
	case 0:
		_, err := s.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: pod})
		return "stop pod", err
	case 1, 2:
		_, err := s.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: pod})
		s.mu.Lock()
		if err == nil {
			delete(s.pods, pod)
		} else {
			s.half = append(s.half, halfRemoved{pod: pod})
		}
		s.mu.Unlock()
		return "remove pod", err
	case 3, 4, 5:
		return s.create(ctx, random, pod, handler)
	case 6:
		ref := s.images[random.IntN(len(s.images))]
		if random.IntN(3) == 0 {
			_, err := s.RemoveImage(ctx, &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: ref}})
			return "remove image", err
		}
		_, err := s.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}})
		return "pull image", err
	case 7:
		_, err := s.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true})
		return "status of a pod", err
	case 8:
		_, err := s.ListContainerStats(ctx, &runtime.ListContainerStatsRequest{})
		return "list stats", err
	}
	return s.touch(ctx, random, pod)
}

func (s *storm) anyPod(random *rand.Rand) (id, handler string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.pods))
	for id := range s.pods {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return "", ""
	}
	slices.Sort(ids)
	id = ids[random.IntN(len(ids))]
	return id, s.pods[id]
}

func (s *storm) runPod(ctx context.Context, random *rand.Rand) (string, error) {
	handler := s.handlers[random.IntN(len(s.handlers))]
	s.mu.Lock()
	many := len(s.pods) > 20
	s.mu.Unlock()
	if many {
		_, err := s.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
		return "list pods", err
	}
	answer, err := s.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: s.podConfig(), RuntimeHandler: handler})
	if err == nil {
		s.Ran(answer.GetPodSandboxId())
		s.mu.Lock()
		s.pods[answer.GetPodSandboxId()] = handler
		s.mu.Unlock()
	}
	return "run pod under " + handler, err
}

func (s *storm) create(ctx context.Context, random *rand.Rand, pod, handler string) (string, error) {
	config := sh("trap 'exit 0' TERM; sleep 1000 & wait")
	if strings.HasPrefix(handler, "wasm") && random.IntN(3) > 0 {
		config = of(world.guest)
		config.Args = []string{"idle"}
	}
	if s.faulty && random.IntN(3) == 0 {
		config = s.writing(handler, random.IntN(10) == 0)
	}
	if s.faulty && config.GetImage().GetImage() == world.busybox && random.IntN(4) == 0 {
		config.Image = &runtime.ImageSpec{Image: s.images[random.IntN(len(s.images))]}
	}
	answer, err := s.CreateContainer(ctx, &runtime.CreateContainerRequest{PodSandboxId: pod, Config: config, SandboxConfig: s.podConfig()})
	if err != nil || random.IntN(4) == 0 {
		return "create container under " + handler, err
	}
	_, err = s.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: answer.GetContainerId()})
	return "start container under " + handler, err
}

// touch makes a request about one of a pod's containers.
func (s *storm) touch(ctx context.Context, random *rand.Rand, pod string) (string, error) {
	list, err := s.ListContainers(ctx, &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: pod}})
	if err != nil || len(list.GetContainers()) == 0 {
		return "list containers", err
	}
	id := list.GetContainers()[random.IntN(len(list.GetContainers()))].GetId()
	switch random.IntN(7) {
	case 0:
		_, err = s.StopContainer(ctx, &runtime.StopContainerRequest{ContainerId: id, Timeout: random.Int64N(2)})
		return "stop container", err
	case 1:
		_, err = s.RemoveContainer(ctx, &runtime.RemoveContainerRequest{ContainerId: id})
		if err != nil {
			s.mu.Lock()
			s.half = append(s.half, halfRemoved{container: id})
			s.mu.Unlock()
		}
		return "remove container", err
	case 2:
		_, err = s.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: id})
		return "start container", err
	case 3:
		_, err = s.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: id, Cmd: []string{"/bin/busybox", "true"}, Timeout: 60})
		if grpcstatus.Code(err) == codes.Unknown { // a guest's file system has no such program, or the container ends meanwhile
			err = nil
		}
		return "exec", err
	case 4:
		_, err = s.UpdateContainerResources(ctx, &runtime.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: &runtime.LinuxContainerResources{CpuShares: 2 + random.Int64N(1000)},
		})
		return "update container", err
	case 5:
		_, err = s.ContainerStats(ctx, &runtime.ContainerStatsRequest{ContainerId: id})
		return "stats", err
	}
	_, err = s.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id})
	return fmt.Sprintf("status of container %q", id), err
}
