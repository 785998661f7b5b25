package probes

import (
	"cmp"
	"slices"
	"time"
)

// Count is how often a probe of a container ended how, over all restarts of the container, in the
// labels of prober_probe_total and prober_probe_duration_seconds.
type Count struct {
	UID, Namespace, Pod, Container string
	Kind                           Kind
	// Successful, Failed and Unknown are the numbers by result; Unknown are those that could not be
	// carried out.
	Successful, Failed, Unknown uint64
	// Duration is the sum of the times that successful ones took.
	Duration time.Duration
}

// Counts returns the counts of all probes that ran, of pods that are not forgotten, sorted by
// namespace, pod, container and kind.
func (p *Prober) Counts() []Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*Count
	for _, o := range p.pods {
		for _, kinds := range o.counts {
			for i := range kinds {
				if kinds[i].UID != "" {
					all = append(all, &kinds[i])
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *Count) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID),
			cmp.Compare(a.Container, b.Container), cmp.Compare(a.Kind, b.Kind))
	})
	out := make([]Count, 0, len(all))
	for _, c := range all {
		out = append(out, *c)
	}
	return out
}

// count adds an outcome to the counts of its probe.
func (b *probe) count(out outcome, took time.Duration) {
	all := b.pod.counts[b.container.name]
	if all == nil {
		all = new([kinds]Count)
		b.pod.counts[b.container.name] = all
	}
	c := &all[b.kind]
	c.UID, c.Namespace, c.Pod = b.pod.uid, b.pod.namespace, b.pod.name
	c.Container, c.Kind = b.container.name, b.kind
	switch {
	case out.err != nil:
		c.Unknown++
	case out.verdict == failure:
		c.Failed++
	default:
		c.Successful++
		c.Duration += took
	}
}
