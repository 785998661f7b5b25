// Package shutdown plans how the pods of a node that shuts down are ended: first all others, then
// the critical ones, each group within its time (SD1, SD3). It is pure.
package shutdown

import "time"

// Graces are the times of a shutdown, as a kubelet's shutdownGracePeriod and
// shutdownGracePeriodCriticalPods.
type Graces struct {
	// Total is how long the whole may take. 0: pods are not ended when the node shuts down.
	Total time.Duration
	// Critical is the part of Total that is kept for critical pods.
	Critical time.Duration
}

// Pod is a pod of which something may run or be started.
type Pod struct {
	UID      string
	Critical bool
	// Over says that nothing of it runs and nothing is being done with it.
	Over bool
}

// Order is to end a pod within a grace period, or within the pod's own if that is shorter.
type Order struct {
	UID   string
	Grace time.Duration
}

// Plan is the course of one shutdown. The zero value is no shutdown.
type Plan struct {
	graces  Graces
	group   group
	since   time.Time // when the group's time started
	ordered map[string]bool
}

type group int

const (
	others group = iota
	critical
	none
)

// Begin starts a shutdown.
func Begin(g Graces, now time.Time) *Plan {
	return &Plan{graces: g, since: now, ordered: map[string]bool{}}
}

// Next says which pods are to be ended now, and when to ask again at the latest. Pods are all that
// may still run; each is ordered once. A group without pods takes no time. When over is set, all
// pods are over or the time is.
func (p *Plan) Next(pods []Pod, now time.Time) (orders []Order, wake time.Time, over bool) {
	for p.group < none {
		until := p.since.Add(p.time())
		left := false
		for _, pod := range pods {
			if pod.Critical != (p.group == critical) {
				continue
			}
			if !p.ordered[pod.UID] {
				p.ordered[pod.UID] = true
				orders = append(orders, Order{pod.UID, max(until.Sub(now), 0)})
				left = true
			}
			left = left || !pod.Over
		}
		if left && now.Before(until) {
			return orders, until, false
		}
		p.group++
		p.since = now
	}
	return orders, time.Time{}, true
}

// time is how long the present group may take.
func (p *Plan) time() time.Duration {
	if p.group == critical {
		return p.graces.Critical
	}
	return p.graces.Total - p.graces.Critical
}
