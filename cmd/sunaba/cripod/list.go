package cripod

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

// Container is a container of a list, as it is printed.
type Container struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Pod       string    `json:"pod"`
	Namespace string    `json:"namespace"`
	PodID     string    `json:"podId"`
	Image     string    `json:"image"`
	State     string    `json:"state"` // Created, Running, Exited or Unknown
	Restarts  uint32    `json:"restarts"`
	Handler   string    `json:"handler"`
	Created   time.Time `json:"created"`
}

// List are the containers of a server, the newest first: those that run, or all.
func List(ctx context.Context, c *dial.Client, all bool) ([]Container, error) {
	n, err := read(ctx, c)
	if err != nil {
		return nil, err
	}
	usual := c.DefaultHandler()
	list := []Container{}
	for _, one := range n.containers {
		if !all && one.GetState() != runtime.ContainerState_CONTAINER_RUNNING {
			continue
		}
		p := n.pod[one.GetPodSandboxId()]
		list = append(list, Container{
			ID: one.GetId(), Name: one.GetMetadata().GetName(), Pod: p.GetMetadata().GetName(), Namespace: p.GetMetadata().GetNamespace(),
			PodID: one.GetPodSandboxId(), Image: cmp.Or(one.GetImage().GetUserSpecifiedImage(), one.GetImage().GetImage()),
			State: stateText(one.GetState()), Restarts: one.GetMetadata().GetAttempt(), Handler: cmp.Or(p.GetRuntimeHandler(), usual),
			Created: time.Unix(0, one.GetCreatedAt()).UTC(),
		})
	}
	slices.SortStableFunc(list, func(a, b Container) int { return b.Created.Compare(a.Created) })
	return list, nil
}

func stateText(s runtime.ContainerState) string {
	text := strings.ToLower(strings.TrimPrefix(s.String(), "CONTAINER_"))
	return strings.ToUpper(text[:1]) + text[1:]
}

// Print prints a list in a format.
func Print(out io.Writer, list []Container, format string, now time.Time) error {
	if output.ForPrograms(format) {
		return output.Encode(out, list, format)
	}
	rows := [][]string{}
	for _, c := range list {
		rows = append(rows, []string{
			c.ID[:min(12, len(c.ID))], c.Name, c.Namespace, c.Pod, c.Handler, c.Image, c.State, strconv.FormatUint(uint64(c.Restarts), 10),
			cycle.Age(c.Created, now),
		})
	}
	return table.NewPrinter(out, []string{"ID", "NAME", "NAMESPACE", "POD", "HANDLER", "IMAGE", "STATE", "RESTARTS", "AGE"}).Print(rows)
}
