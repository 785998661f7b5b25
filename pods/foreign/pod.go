package foreign

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
)

// runtimeName stands before the ids of containers, as in the statuses of the agent's pods.
const runtimeName = "sunaba://"

// pod is a sandbox with its containers, as a Pod.
func (v *View) pod(r *runtime.PodSandboxStatusResponse) *corev1.Pod {
	s := r.GetStatus()
	m := s.GetMetadata()
	created := metav1.NewTime(time.Unix(0, s.GetCreatedAt()))
	labels := maps.Clone(s.GetLabels())
	maps.DeleteFunc(labels, func(k, _ string) bool {
		return k == translate.PodNameLabel || k == translate.PodNamespaceLabel || k == translate.PodUIDLabel
	})
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.GetNamespace(), Name: m.GetName(), UID: types.UID(m.GetUid()), CreationTimestamp: created,
			Labels: labels, Annotations: s.GetAnnotations(),
		},
		Spec: corev1.PodSpec{
			NodeName: v.o.NodeName, HostNetwork: namespaces(s).GetNetwork() == runtime.NamespaceMode_NODE,
			HostPID: namespaces(s).GetPid() == runtime.NamespaceMode_NODE, HostIPC: namespaces(s).GetIpc() == runtime.NamespaceMode_NODE,
		},
		Status: corev1.PodStatus{StartTime: &created},
	}
	if class := v.o.Class(s.GetRuntimeHandler()); class != "" {
		p.Spec.RuntimeClassName = &class
	}
	for _, attempts := range byName(r.GetContainersStatuses()) {
		now := attempts[0]
		image := cmp.Or(now.GetImage().GetUserSpecifiedImage(), now.GetImage().GetImage())
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: now.GetMetadata().GetName(), Image: image})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status(attempts, image))
	}
	ready := s.GetState() == runtime.PodSandboxState_SANDBOX_READY
	if n := s.GetNetwork(); ready && n.GetIp() != "" {
		p.Status.PodIP, p.Status.PodIPs = n.GetIp(), []corev1.PodIP{{IP: n.GetIp()}}
		for _, more := range n.GetAdditionalIps() {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: more.GetIp()})
		}
	}
	judge(&p.Status, ready)
	if Made(s.GetAnnotations()) == ByKubelet {
		p.Status.QOSClass = qos(r.GetContainersStatuses())
	}
	return p
}

// Is says whether a pod is one of a View: those have no restart policy, which all of manifests
// have.
func Is(p *corev1.Pod) bool { return p.Spec.RestartPolicy == "" }

// qos is the class of service of a kubelet's pod, by the OOM score adjustments that a kubelet gives
// containers of a class (pkg/kubelet/qos); "" where it is not certain: a critical pod of any class
// has that of Guaranteed.
func qos(containers []*runtime.ContainerStatus) corev1.PodQOSClass {
	const leastBurstable, bestEffort = 3, 1000
	for _, c := range containers {
		linux := c.GetResources().GetLinux()
		if linux == nil {
			continue
		}
		switch adjustment := linux.GetOomScoreAdj(); {
		case adjustment == bestEffort:
			return corev1.PodQOSBestEffort
		case adjustment >= leastBurstable && adjustment < bestEffort:
			return corev1.PodQOSBurstable
		}
	}
	return ""
}

func namespaces(s *runtime.PodSandboxStatus) *runtime.NamespaceOption {
	return s.GetLinux().GetNamespaces().GetOptions()
}

// byName are containers by their name, in its order; of each the newest attempt is first.
func byName(all []*runtime.ContainerStatus) [][]*runtime.ContainerStatus {
	groups := map[string][]*runtime.ContainerStatus{}
	for _, c := range all {
		name := c.GetMetadata().GetName()
		groups[name] = append(groups[name], c)
	}
	var sorted [][]*runtime.ContainerStatus
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		attempts := groups[name]
		slices.SortFunc(attempts, func(a, b *runtime.ContainerStatus) int {
			return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()))
		})
		sorted = append(sorted, attempts)
	}
	return sorted
}

// status is a container with its attempts.
func status(attempts []*runtime.ContainerStatus, image string) corev1.ContainerStatus {
	now := attempts[0]
	running := now.GetState() == runtime.ContainerState_CONTAINER_RUNNING
	st := corev1.ContainerStatus{
		Name: now.GetMetadata().GetName(), State: state(now), Ready: running, Started: &running, RestartCount: int32(now.GetMetadata().GetAttempt()),
		Image: image, ImageID: cmp.Or(now.GetImageRef(), now.GetImageId()), ContainerID: runtimeName + now.GetId(),
	}
	if len(attempts) > 1 {
		st.LastTerminationState = state(attempts[1])
	}
	return st
}

// state is what a container does, or how it ended.
func state(c *runtime.ContainerStatus) corev1.ContainerState {
	started := metav1.NewTime(time.Unix(0, c.GetStartedAt()))
	switch c.GetState() {
	case runtime.ContainerState_CONTAINER_RUNNING:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	case runtime.ContainerState_CONTAINER_EXITED:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: c.GetExitCode(), Reason: c.GetReason(), Message: strings.TrimSpace(c.GetMessage()), StartedAt: started,
			FinishedAt: metav1.NewTime(time.Unix(0, c.GetFinishedAt())), ContainerID: runtimeName + c.GetId(),
		}}
	}
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
}

// judge sets phase and conditions of a pod by the states of its containers. Nobody here knows
// probes, or what is going to be started again.
func judge(st *corev1.PodStatus, sandboxReady bool) {
	running, failed, begun := 0, 0, 0
	for _, c := range st.ContainerStatuses {
		switch {
		case c.State.Running != nil:
			running++
			begun++
		case c.State.Terminated != nil:
			begun++
			if c.State.Terminated.ExitCode != 0 {
				failed++
			}
		}
	}
	all := len(st.ContainerStatuses)
	switch {
	case sandboxReady && begun == 0:
		st.Phase = corev1.PodPending
	case sandboxReady:
		st.Phase = corev1.PodRunning
	case all == 0 || begun < all:
		st.Phase, st.Reason = corev1.PodUnknown, "NotReady"
	case failed > 0:
		st.Phase = corev1.PodFailed
	default:
		st.Phase = corev1.PodSucceeded
	}
	condition := func(of corev1.PodConditionType, holds bool) {
		status := corev1.ConditionFalse
		if holds {
			status = corev1.ConditionTrue
		}
		st.Conditions = append(st.Conditions, corev1.PodCondition{Type: of, Status: status})
	}
	condition(corev1.PodReadyToStartContainers, sandboxReady)
	condition(corev1.PodReady, sandboxReady && all > 0 && running == all)
	condition(corev1.ContainersReady, sandboxReady && all > 0 && running == all)
}
