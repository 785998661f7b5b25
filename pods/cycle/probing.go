package cycle

// updateReady brings up to date which container is started and ready (ST5, ST6, PR4, PR11, PR24).
func updateReady(n *step, it *item) {
	c, o := it.c, it.obs
	started, ready := "", ""
	if o.State == StateRunning {
		started, ready = startedID(n, it), c.Ready
		if it.spec.ReadinessProbe != nil {
			switch o.Readiness {
			case ProbeSuccess:
				ready = o.ID
			case ProbeFailure:
				ready = ""
			case ProbeUnknown: // as it was, until a probe says otherwise
			}
		} else {
			ready = started
		}
		if started == "" || ready != o.ID {
			ready = ""
		}
	}
	if c.Started != started || c.Ready != ready {
		c.Started, c.Ready = started, ready
		n.dirty()
	}
}

// startedID is the container's id if it is started: its hook is over and its startup probe passed
// once.
func startedID(n *step, it *item) string {
	id := it.obs.ID
	switch {
	case it.c.Started == id:
		return id
	case !hookOver(n, it):
		return ""
	case it.spec.StartupProbe != nil && it.obs.Startup != ProbeSuccess:
		return ""
	}
	return id
}

// hookOver says that a running container has no postStart hook or that it is over.
func hookOver(n *step, it *item) bool {
	if _, starting := n.running(it.name); starting && n.r.Live.Running[it.name].Verb == StartContainer {
		return it.c.Started == it.obs.ID
	}
	return it.spec.Lifecycle == nil || it.spec.Lifecycle.PostStart == nil ||
		it.c.PostStart.ID == it.obs.ID && it.c.PostStart.Over
}

// probeSets says which probes run now (PR3, PR10, PR20).
func probeSets(n *step) {
	for _, it := range n.items {
		o := it.obs
		if o == nil || o.State != StateRunning || !hookOver(n, it) {
			continue
		}
		killed := it.c.Kill != nil && it.c.Kill.ID == o.ID || n.ending() || n.r.Stopping != nil
		started := it.c.Started == o.ID
		p := ProbeSet{Container: it.name, ID: o.ID, Started: o.Started,
			Startup:   it.spec.StartupProbe != nil && !started && !killed,
			Readiness: it.spec.ReadinessProbe != nil && started,
			Liveness:  it.spec.LivenessProbe != nil && started && !killed}
		if p.Startup || p.Readiness || p.Liveness {
			n.d.Probes = append(n.d.Probes, p)
		}
	}
}
