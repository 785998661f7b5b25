package admission

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/translate"
)

func node() Node {
	return Node{
		Name: "till-4", Labels: map[string]string{"zone": "b", "cores": "4"}, Handlers: []string{"runc", "wasm"},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("3")},
		Classes: []nodev1.RuntimeClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Handler: "wasm", Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata"},
			{ObjectMeta: metav1.ObjectMeta{Name: "zoned"}, Handler: "runc", Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"zone": "a"}}},
		},
		AppArmor: func(p *corev1.Pod) error { return translate.CheckAppArmor(p, false) },
		Sysctls: func(p *corev1.Pod) error {
			if p.Spec.SecurityContext != nil && len(p.Spec.SecurityContext.Sysctls) > 0 {
				return errors.New(`forbidden sysctl: "x" not allowlisted`)
			}
			return nil
		},
		Exclusive: func(_, claim string) bool { return claim == "own" },
	}
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}}}}}
	if change != nil {
		change(p)
	}
	return p
}

func port(p *corev1.Pod, number int32, ip string, protocol corev1.Protocol) {
	p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: number, HostIP: ip, Protocol: protocol})
}

func claim(p *corev1.Pod, name string) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
}

func affinity(p *corev1.Pod, terms ...corev1.NodeSelectorTerm) {
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

func requires(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

const selector = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."

// judgement is what is to become of a pod.
type judgement struct {
	name    string
	change  func(*corev1.Pod)
	others  []*corev1.Pod
	pending string // reason and message
	final   string // reason
	message string // of the event; "" if it does not matter
	handler string
}

func judgements() []judgement {
	return []judgement{
		{name: "AD10: no class"},
		{name: "AD11: class", change: func(p *corev1.Pod) { p.Spec.RuntimeClassName = text("edge") }, handler: "wasm"},
		{name: "AD13: handler as class", change: func(p *corev1.Pod) { p.Spec.RuntimeClassName = text("wasm") }, handler: "wasm"},
		{name: "AD12: no class", change: func(p *corev1.Pod) { p.Spec.RuntimeClassName = text("none") }, final: RuntimeClassNotFound},
		{name: "AD12: no handler", change: func(p *corev1.Pod) { p.Spec.RuntimeClassName = text("kata") }, final: RuntimeHandlerNotFound},
		{name: "AD11: class's selector", change: func(p *corev1.Pod) { p.Spec.RuntimeClassName = text("zoned") }, pending: "Unschedulable " + selector},
		{name: "AD4: selector", change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }},
		{name: "AD4: other selector", change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }, pending: "Unschedulable " + selector},
		{name: "AD4: affinity", change: func(p *corev1.Pod) {
			affinity(p, requires("zone", corev1.NodeSelectorOpNotIn, "b"), requires("cores", corev1.NodeSelectorOpGt, "3"))
		}},
		{name: "AD4: other affinity", change: func(p *corev1.Pod) { affinity(p, requires("cores", corev1.NodeSelectorOpLt, "4")) }, pending: "Unschedulable " + selector},
		{name: "AD4: empty term", change: func(p *corev1.Pod) { affinity(p, corev1.NodeSelectorTerm{}) }, pending: "Unschedulable " + selector},
		{name: "AD5", change: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} },
			pending: "SchedulingGated Scheduling is blocked due to non-empty scheduling gates"},
		{name: "AD6: cpu", others: []*corev1.Pod{pod(nil), pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1100m")
		})}, pending: "Unschedulable 0/1 nodes are available: 1 Insufficient cpu."},
		{name: "AD6: just fits", others: []*corev1.Pod{pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1500m")
		})}},
		{name: "AD6: pods", others: []*corev1.Pod{pod(nil), pod(nil), pod(nil)}, pending: "Unschedulable 0/1 nodes are available: 1 Too many pods."},
		{name: "AD6: unknown resource", change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}, pending: "Unschedulable 0/1 nodes are available: 1 Insufficient example.com/gpu."},
		{name: "AD6: port", change: func(p *corev1.Pod) { port(p, 80, "", "") }, others: []*corev1.Pod{pod(func(p *corev1.Pod) { port(p, 80, "127.0.0.1", corev1.ProtocolTCP) })},
			pending: "Unschedulable 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."},
		{name: "AD6: other address", change: func(p *corev1.Pod) { port(p, 80, "192.0.2.1", "") }, others: []*corev1.Pod{pod(func(p *corev1.Pod) { port(p, 80, "127.0.0.1", "") })}},
		{name: "AD6: other protocol", change: func(p *corev1.Pod) { port(p, 80, "", corev1.ProtocolUDP) }, others: []*corev1.Pod{pod(func(p *corev1.Pod) { port(p, 80, "", "") })}},
		{name: "VO17: claim", change: func(p *corev1.Pod) { claim(p, "own") }, others: []*corev1.Pod{pod(func(p *corev1.Pod) { claim(p, "own") })},
			pending: "Unschedulable 0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode."},
		{name: "VO17: shared claim", change: func(p *corev1.Pod) { claim(p, "shared") }, others: []*corev1.Pod{pod(func(p *corev1.Pod) { claim(p, "shared") })}},
		{name: "AD9", change: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, final: PodOSNotSupported},
		{name: "AD15", change: func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "x"}}}
		}, final: SysctlForbidden, message: `forbidden sysctl: "x" not allowlisted`},
		{name: "AD15: AppArmor", change: func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
		}, final: AppArmorMissing, message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		{name: "AD16: no such class", change: func(p *corev1.Pod) { p.Spec.PriorityClassName = "gold" },
			pending: "FailedValidation spec.priorityClassName: no PriorityClass with name gold was found: not found"},
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range judgements() {
		t.Run(tt.name, func(t *testing.T) {
			v := node().Judge(pod(tt.change), tt.others)
			pending, final := "", ""
			if v.Pending != nil {
				pending = v.Pending.Reason + " " + v.Pending.Message
			}
			if v.Final != nil {
				final = v.Final.Reason
			}
			if v.Final != nil && tt.message != "" {
				if reason, message := Event(*v.Final); v.Final.Message != "Pod was rejected: "+tt.message || reason != tt.final || message != tt.message {
					t.Errorf("message %q, event %s %q", v.Final.Message, reason, message)
				}
			}
			if pending != tt.pending || final != tt.final || v.Handler != tt.handler {
				t.Errorf("pending %q, final %q, handler %q", pending, final, v.Handler)
			}
			if ok := pending == "" && final == ""; ok && (v.Pod.Spec.NodeName != "till-4" || v.Pod.Spec.Priority == nil) {
				t.Errorf("admitted pod %+v", v.Pod.Spec)
			}
		})
	}
}

// EX10: conditions of the node keep pods out; they wait as those that do not fit.
func TestPressure(t *testing.T) {
	low := resource.MustParse("9Gi")
	for _, tt := range []struct {
		pod    *corev1.Pod
		active corev1.NodeConditionType
		want   string
	}{
		{pod(nil), corev1.NodeMemoryPressure, ""},
		{pod(nil), corev1.NodeDiskPressure, "node had condition: [DiskPressure]"},
		{pod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }), corev1.NodeMemoryPressure, "node had condition: [MemoryPressure]"},
		{pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = nodeCritical }), corev1.NodePIDPressure, ""},
		{pod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = low }), corev1.NodePIDPressure, "node had condition: [PIDPressure]"},
	} {
		n := node()
		n.Pressure = []corev1.NodeConditionType{tt.active}
		v, got := n.Judge(tt.pod, nil), ""
		if v.Pending != nil {
			got = v.Pending.Message
		}
		if got != tt.want || v.Final != nil || v.Pending != nil && v.Pending.Reason != Unschedulable {
			t.Errorf("%q, %+v, want %q", got, v.Final, tt.want)
		}
	}
}

func text(s string) *string { return &s }

// AD11: overhead is the class's. AD16: the built-in priorities. AD4: another node's pod. AD7:
// order.
func TestAdmitted(t *testing.T) {
	v := node().Judge(pod(func(p *corev1.Pod) { p.Spec.RuntimeClassName = text("edge") }), nil)
	if got := v.Pod.Spec.Overhead.Memory().String(); got != "1Mi" {
		t.Errorf("overhead %s", got)
	}
	v = node().Judge(pod(func(p *corev1.Pod) {
		p.Spec.RuntimeClassName = text("edge")
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Mi")}
	}), nil)
	if v.Pending == nil || v.Pending.Reason != FailedValidation {
		t.Errorf("an overhead of the user's own: %+v", v)
	}
	given := int32(7)
	high := pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = nodeCritical })
	low := pod(func(p *corev1.Pod) { p.Spec.Priority = &given })
	for p, want := range map[*corev1.Pod]int32{
		high: 2000001000, low: 7, pod(nil): 0, pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = clusterCritical }): 2000000000,
	} {
		if got := *node().Judge(p, nil).Pod.Spec.Priority; got != want {
			t.Errorf("priority %d, want %d", got, want)
		}
	}
	if Before(high, low) >= 0 || Before(low, high) <= 0 || Before(low, low) != 0 {
		t.Error("the higher priority is not first")
	}
	if n := node(); !n.Foreign(pod(func(p *corev1.Pod) { p.Spec.NodeName = "x" })) || n.Foreign(pod(func(p *corev1.Pod) { p.Spec.NodeName = "till-4" })) || n.Foreign(pod(nil)) {
		t.Error("wrong node")
	}
}
