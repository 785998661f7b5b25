package describe

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NC1-NC3: what describe says of a node, in kubectl's sections.
func TestNode(t *testing.T) {
	at := metav1.NewTime(clock().Add(-time.Hour))
	n := &corev1.Node{}
	n.Name, n.CreationTimestamp, n.Labels = "till-4", at, map[string]string{"kubernetes.io/os": "linux"}
	n.Status = corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady", Message: "agent is\x1b posting ready status", LastHeartbeatTime: at, LastTransitionTime: at,
		}},
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.4"}},
		Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("10")},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("512Mi"), corev1.ResourcePods: resource.MustParse("10")},
		NodeInfo:    corev1.NodeSystemInfo{BootID: "b", KernelVersion: "6.18", OSImage: "Debian", OperatingSystem: "linux", Architecture: "arm", KubeletVersion: "v1", ContainerRuntimeVersion: "sunaba://v1"},
	}
	web := corev1.Pod{}
	web.Namespace, web.Name, web.CreationTimestamp, web.Spec.NodeName, web.Status.Phase = "default", "web", at, "till-4", corev1.PodRunning
	web.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Mi")}
	web.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("120Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("504Mi")},
	}}}
	done, waiting := web, web
	done.Status.Phase, waiting.Spec.NodeName = corev1.PodSucceeded, ""
	events := []corev1.Event{{InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "till-4"}, Reason: "Shutdown"}, {InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "till-4"}}}
	events = NodeEvents(events, "till-4")
	if len(events) != 1 {
		t.Errorf("events %v", events)
	}
	var out bytes.Buffer
	if err := Node(&out, n, []corev1.Pod{web, done, waiting}, nil, clock()); err != nil {
		t.Fatal(err)
	}
	const want = `Name:               till-4
Labels:             kubernetes.io/os=linux
Annotations:        <none>
CreationTimestamp:  Fri, 31 Dec 1999 23:00:00 +0000
Conditions:
  Type   Status  LastHeartbeatTime                LastTransitionTime               Reason      Message
  ----   ------  -----------------                ------------------               ------      -------
  Ready  True    Fri, 31 Dec 1999 23:00:00 +0000  Fri, 31 Dec 1999 23:00:00 +0000  AgentReady  agent is^[ posting ready status
Addresses:
  InternalIP:  192.0.2.4
Capacity:
  cpu:     2
  memory:  1Gi
  pods:    10
Allocatable:
  cpu:     2
  memory:  512Mi
  pods:    10
System Info:
  Machine ID:                 
  System UUID:                
  Boot ID:                    b
  Kernel Version:             6.18
  OS Image:                   Debian
  Operating System:           linux
  Architecture:               arm
  Container Runtime Version:  sunaba://v1
  Sunaba Version:             v1
Non-terminated Pods:          (1 in total)
  Namespace                   Name    CPU Requests  CPU Limits  Memory Requests  Memory Limits  Age
  ---------                   ----    ------------  ----------  ---------------  -------------  ---
  default                     web     500m (25%)    0 (0%)      128Mi (25%)      512Mi (100%)   60m
Allocated resources:
  (Total limits may be over 100 percent, i.e., overcommitted.)
  Resource  Requests     Limits
  --------  --------     ------
  cpu       500m (25%)   0 (0%)
  memory    128Mi (25%)  512Mi (100%)
Events:     <none>
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
