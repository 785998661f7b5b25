package main

import (
	"sync/atomic"
	"time"

	nodev1 "k8s.io/api/node/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// patience is how long a pod may cost more than it declares before the log says so.
const patience = time.Minute

// classBook holds the RuntimeClasses that the configuration names. They can be read anew while the
// server runs.
type classBook struct {
	paths []string
	now   atomic.Pointer[[]nodev1.RuntimeClass]
}

func openClasses(paths []string) (*classBook, error) {
	b := &classBook{paths: paths}
	return b, b.reload()
}

// reload reads the classes again. If they are not right, or a class's handler was changed, those
// before stay.
func (b *classBook) reload() error {
	all, err := classes.Read(b.paths)
	if err != nil {
		return err
	}
	if before := b.now.Load(); before != nil {
		if err := runtimeclass.CheckReload(*before, all); err != nil {
			return err
		}
	}
	b.now.Store(&all)
	return nil
}

// all are the classes as they were read last.
func (b *classBook) all() []nodev1.RuntimeClass { return *b.now.Load() }

// class is a pod's RuntimeClass, as far as handler and overhead tell.
func (b *classBook) class(handler string, declared *runtime.LinuxContainerResources) string {
	return runtimeclass.ClassOf(*b.now.Load(), handler, runtimeclass.Linux{
		MemoryBytes: declared.GetMemoryLimitInBytes(), CPUShares: declared.GetCpuShares(),
		CPUQuota: declared.GetCpuQuota(), CPUPeriod: declared.GetCpuPeriod(),
	})
}
