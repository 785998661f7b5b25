package podagent

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/agent/node"
	"github.com/sunaba-project/sunaba/version"
)

// statusTime is how long the CRI server may take to say how it is.
const statusTime = 5 * time.Second

// nodeView is the node as the commands see it. It is judged when somebody asks.
type nodeView struct {
	facts   node.Facts
	uid     types.UID
	created time.Time
	agent   interface {
		Health() error
		ShuttingDown() bool
		// Conditions are those of memory, disk and processes.
		Conditions() []corev1.NodeCondition
	}
	cri interface {
		Status(context.Context, *runtime.StatusRequest) (*runtime.StatusResponse, error)
	}
	kept node.Conditions
	// fixed are the labels that every node has, labels all.
	fixed  map[string]string
	labels atomic.Pointer[map[string]string]
}

func newNodeView(o Options, facts node.Facts, a *agent.Agent) (*nodeView, error) {
	mark, err := identity.Mark(o.pods())
	if err != nil {
		return nil, err
	}
	created, err := identity.Since(o.pods())
	if err != nil {
		return nil, err
	}
	v := &nodeView{facts: facts, uid: types.UID(mark), created: created, agent: a, cri: o.CRI, fixed: node.Labels(facts.Node.Name)}
	v.relabel(o.Config.NodeLabels)
	return v, nil
}

// relabel gives the node these labels beside those that every node has, and answers all.
func (v *nodeView) relabel(labels map[string]string) map[string]string {
	all := maps.Clone(v.fixed)
	maps.Copy(all, labels)
	v.labels.Store(&all)
	return all
}

// object is the node now.
func (v *nodeView) object() *corev1.Node {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	status, err := v.cri.Status(ctx, &runtime.StatusRequest{})
	// Ready is the last one, as a kubelet's.
	conditions := append(slices.Clip(v.agent.Conditions()), node.Ready(node.Health{Agent: v.agent.Health(), Failed: err, Status: status, ShuttingDown: v.agent.ShuttingDown()}))
	facts := v.facts
	facts.Labels = *v.labels.Load()
	return facts.Object(node.Seen{
		UID: v.uid, Created: v.created, Version: version.String(), Runtime: "sunaba", Status: status, Conditions: v.kept.Keep(conditions, time.Now()),
	})
}
