package podagent

import (
	"context"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// measuring has rates from the second reading on, as the server.
type measuring struct{ asked int }

func (m *measuring) ListContainerStats(context.Context, *runtime.ListContainerStatsRequest) (*runtime.ListContainerStatsResponse, error) {
	m.asked++
	one := func(mark string) *runtime.ContainerStats {
		s := &runtime.ContainerStats{Cpu: &runtime.CpuUsage{}, Memory: &runtime.MemoryUsage{WorkingSetBytes: &runtime.UInt64Value{Value: 7}}, Attributes: &runtime.ContainerAttributes{
			Labels:      map[string]string{translate.PodUIDLabel: "u", translate.ContainerNameLabel: "app"},
			Annotations: map[string]string{translate.MarkAnnotation: mark},
		}}
		if m.asked > 1 {
			s.Cpu.UsageNanoCores = &runtime.UInt64Value{Value: 9}
		}
		return s
	}
	return &runtime.ListContainerStatsResponse{Stats: []*runtime.ContainerStats{one("agent"), one("")}}, nil
}

// A container without a rate is measured again, and one of another client is left out.
func TestUsage(t *testing.T) {
	m := &measuring{}
	got, err := usage(t.Context(), m)
	if err != nil || m.asked != 2 || len(got) != 1 || got[0] != (api.ContainerUsage{Pod: "u", Container: "app", NanoCores: 9, MemoryBytes: 7}) {
		t.Errorf("%+v, %v, asked %d times", got, err, m.asked)
	}
}
