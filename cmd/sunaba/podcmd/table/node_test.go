package table

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/pods/api"
)

// B.6: the columns of nodes.
func TestNode(t *testing.T) {
	r, _ := api.FindResource("node")
	n := corev1.Node{}
	n.Name, n.Status.NodeInfo.KubeletVersion = "till-4", "v1"
	n.Status.NodeInfo.OSImage, n.Status.NodeInfo.KernelVersion = "Debian 13", "6.18.0"
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "till-4"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.4"}}
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourceMemory: resource.MustParse("1600Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("512"),
	}
	for status, c := range map[string]struct {
		conditions    []corev1.NodeCondition
		unschedulable bool
	}{
		"Unknown":                     {},
		"Ready":                       {conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		"NotReady,SchedulingDisabled": {conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}, unschedulable: true},
	} {
		n.Status.Conditions, n.Spec.Unschedulable = c.conditions, c.unschedulable
		raw, err := json.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}
		row, err := Row(r, raw, clock(), Options{Wide: true})
		if got, want := strings.Join(row, "|"), "till-4|"+status+"|<unknown>|v1|192.0.2.4|Debian 13|6.18.0|1.6Gi|512"; got != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		if len(Header(r, Options{Wide: true})) != len(row) || len(Header(r, Options{})) != 4 {
			t.Errorf("header %v", Header(r, Options{Wide: true}))
		}
	}
}
