package podcmd

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/api"
)

// NC1: the node is listed and described as any object; describe has its pods and its events.
func TestNode(t *testing.T) {
	n := newNode(t)
	n.agent.objects[api.KindNode] = []metav1.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "till-4"}}}
	for _, p := range n.agent.pods {
		p.Spec.NodeName = "till-4"
	}
	n.agent.events = append(n.agent.events, &corev1.Event{Reason: "Rebooted", InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "till-4"}})
	for line, want := range map[string]string{
		"get no":                  "till-4   Unknown   <unknown>",
		"get node/till-4 -o name": "node/till-4\n",
		"get nodes -o yaml":       "kind: Node\n",
		"describe node":           "Non-terminated Pods:          (2 in total)",
		"describe node till-4":    "Rebooted",
	} {
		out, _, err := n.run(t.Context(), "", strings.Fields(line)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	if out, _, err := n.run(t.Context(), "", "describe", "node"); err != nil || strings.Contains(out, "BackOff") {
		t.Errorf("%v: events of pods\n%s", err, out)
	}
	if _, _, err := n.run(t.Context(), "", "delete", "node/till-4"); err == nil {
		t.Error("the node was deleted")
	}
}

// power notes what it is asked.
type power struct {
	calls []string
	fails error
}

func (p *power) Shutdown(context.Context) error {
	p.calls = append(p.calls, "shutdown")
	return p.fails
}

func (p *power) CancelShutdown(context.Context) error {
	p.calls = append(p.calls, "cancel")
	return p.fails
}

func TestShutdown(t *testing.T) {
	n, p := newNode(t), &power{}
	n.dir = t.TempDir()
	s, err := api.Listen(filepath.Join(n.dir, api.SocketName), api.Options{Agent: n.agent, Shutdown: p, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, args := range [][]string{{"shutdown"}, {"shutdown", "--cancel"}} {
		if out, _, err := n.run(t.Context(), "", args...); err != nil || out == "" {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
	if got := fmt.Sprint(p.calls); got != "[shutdown cancel]" {
		t.Errorf("calls %s", got)
	}
	p.fails = fmt.Errorf("it is turned off: %w", errdefs.ErrFailedPrecondition)
	if out, _, err := n.run(t.Context(), "", "shutdown"); !errdefs.IsFailedPrecondition(err) || out != "" {
		t.Errorf("%q, %v", out, err)
	}
	if _, _, err := n.run(t.Context(), "", "shutdown", "web"); err == nil || !strings.Contains(err.Error(), "all pods") {
		t.Errorf("error %v", err)
	}
}
