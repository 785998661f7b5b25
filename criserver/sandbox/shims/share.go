package shims

import (
	"time"

	"github.com/containerd/errdefs"
)

// Share is a pod's part of the shim that it shares.
type Share struct {
	Shim, Keeper int           // pids; 0 = not known
	Pods         int           // how many share it, this one among them
	CPU          time.Duration // of both, what falls to this pod: at any time each pod bears the same part
}

// Share returns a pod's part; false for one that shares none.
func (s *Set) Share(handler, pod string) (Share, bool) {
	one := s.of(handler)
	one.mu.Lock()
	defer one.mu.Unlock()
	if _, joined := one.pods[pod]; !joined || one.client == nil {
		return Share{}, false
	}
	one.charge()
	return Share{Shim: one.client.PID(), Keeper: one.client.Keeper(), Pods: len(one.pods), CPU: one.pods[pod]}, true
}

func (s *shared) add(pod string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge()
	if _, joined := s.pods[pod]; !joined {
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
	_, joined := s.pods[pod]
	return joined
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

// settle lets pods be charged, when all that an earlier server ran are there: what the shim used before falls to all of them
// alike.
func (s *shared) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.charge()
}

// charge divides among the pods that are there what the shim has used since the last time. The caller has the lock.
func (s *shared) charge() {
	if s.client == nil || s.waiting || len(s.pods) == 0 {
		return
	}
	used, err := s.o.CPU(s.o.Cgroups.Path(s.leaf))
	if err != nil {
		if !errdefs.IsNotFound(err) && !s.accountBroken {
			s.accountBroken = true
			s.o.Logger.Warn("measure the shim of a handler", "handler", s.handler, "error", err)
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
