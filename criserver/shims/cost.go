package shims

import (
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Cost implements Shims. The CPU time of shim and supervisor is divided: at any time each pod that
// is there bears the same part.
func (s *shared) Cost(pod state.Sandbox, shim *client.Client) []Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, holds := s.pods[pod.ID]; !holds || s.client == nil {
		return own{s.o}.Cost(pod, shim)
	}
	s.charge()
	return []Process{
		{Name: Shim, PID: s.client.PID(), Pods: len(s.pods), CPU: s.pods[pod.ID]},
		{Name: Supervisor, PID: s.client.Supervisor(), Pods: len(s.pods)},
	}
}

// pids are the processes of the shim that a pod holds.
func (s *shared) pids(pod state.Sandbox) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, holds := s.pods[pod.ID]; !holds || s.client == nil {
		return nil
	}
	return []int{s.client.PID(), s.client.Supervisor()}
}

func (s *shared) add(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge()
	if _, holds := s.pods[pod]; !holds {
		s.pods[pod] = 0
	}
}

func (s *shared) drop(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge()
	delete(s.pods, pod)
}

func (s *shared) has(pod string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, holds := s.pods[pod]
	return holds
}

func (s *shared) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pods)
}

// wait keeps pods from being charged until settle.
func (s *shared) wait() {
	s.mu.Lock()
	s.waiting = true
	s.mu.Unlock()
}

// settle lets pods be charged, when all that an earlier server ran are there: what the shim used
// before is divided among all of them.
func (s *shared) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.charge()
}

// charge divides among the pods that are there what the shim has used since the last time. The
// caller has the lock.
func (s *shared) charge() {
	if s.client == nil || s.waiting || len(s.pods) == 0 {
		return
	}
	used, err := s.o.CPU(s.o.Cgroups.Path(s.leaf))
	if err != nil {
		if !errdefs.IsNotFound(err) && !s.accountBroken {
			s.accountBroken = true
			s.o.Logger.Warn("failed to measure the shim of a handler", "handler", s.handler, "error", err)
		}
		return
	}
	part := (used - s.charged) / time.Duration(len(s.pods))
	if part <= 0 {
		return
	}
	for pod := range s.pods {
		s.pods[pod] += part
	}
	s.charged += part * time.Duration(len(s.pods))
}
