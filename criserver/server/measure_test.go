package server

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Each item is measured once, and what fails is left out of the results, which are in order.
func TestMeasure(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		var items, want []int
		for i := range n {
			items = append(items, i)
			if i%3 != 0 {
				want = append(want, 10*i)
			}
		}
		calls := make([]atomic.Int32, n)
		got, err := measure(t.Context(), items, func(i int) (int, error) {
			if calls[i].Add(1); i%3 == 0 {
				return 1, errLeftOut
			}
			return 10 * i, nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d items: %v, %v", n, got, err)
		}
		for i := range calls {
			if calls[i].Load() != 1 {
				t.Errorf("item %d was measured %d times", i, calls[i].Load())
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int32
	if _, err := measure(ctx, make([]int, 1000), func(int) (int, error) {
		if calls.Add(1) == 10 {
			cancel()
		}
		return 0, nil
	}); !errors.Is(err, context.Canceled) || calls.Load() == 1000 {
		t.Errorf("of a request that is given up: %d items, %v", calls.Load(), err)
	}
}

// Pressures of a pod are read unless none of its containers has any.
func TestPressed(t *testing.T) {
	guest, other := &runtime.ContainerStats{Cpu: &runtime.CpuUsage{}}, &runtime.ContainerStats{Cpu: &runtime.CpuUsage{Psi: &runtime.PsiStats{}}}
	for _, c := range []struct {
		parts []*runtime.ContainerStats
		want  bool
	}{
		{nil, true}, {[]*runtime.ContainerStats{guest}, false}, {[]*runtime.ContainerStats{other}, true}, {[]*runtime.ContainerStats{guest, other}, true},
	} {
		if got := pressed(c.parts); got != c.want {
			t.Errorf("of %v: %t", c.parts, got)
		}
	}
}
