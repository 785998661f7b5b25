package podagent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/clock"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// rateTime is how far apart two readings are of what was not measured before.
const rateTime = time.Second

type statsCRI interface {
	ListContainerStats(context.Context, *runtime.ListContainerStatsRequest) (*runtime.ListContainerStatsResponse, error)
}

// usage measures the running containers of pods. A rate needs two readings, so that one that is
// measured for the first time is measured twice.
func usage(ctx context.Context, cri statsCRI) ([]api.ContainerUsage, error) {
	list, err := cri.ListContainerStats(ctx, &runtime.ListContainerStatsRequest{})
	if err == nil && slices.ContainsFunc(list.GetStats(), func(s *runtime.ContainerStats) bool {
		return s.GetCpu() != nil && s.GetCpu().GetUsageNanoCores() == nil
	}) {
		if err := clock.Sleep(ctx, rateTime); err != nil {
			return nil, err
		}
		list, err = cri.ListContainerStats(ctx, &runtime.ListContainerStatsRequest{})
	}
	if err != nil {
		return nil, fmt.Errorf("measure containers: %w", err)
	}
	all := []api.ContainerUsage{}
	for _, s := range list.GetStats() {
		a := s.GetAttributes()
		if uid := a.GetLabels()[translate.PodUIDLabel]; uid != "" && a.GetAnnotations()[translate.MarkAnnotation] != "" && s.GetCpu().GetUsageNanoCores() != nil {
			all = append(all, api.ContainerUsage{
				Pod: types.UID(uid), Container: a.GetLabels()[translate.ContainerNameLabel],
				NanoCores: s.GetCpu().GetUsageNanoCores().GetValue(), MemoryBytes: s.GetMemory().GetWorkingSetBytes().GetValue(),
			})
		}
	}
	return all, nil
}
