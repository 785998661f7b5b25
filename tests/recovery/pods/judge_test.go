package pods

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// note is a line of the journal.
type note struct {
	name, instance, what string
	at                   float64 // seconds since the boot
}

// slack is how exact the journal's times are, in seconds.
const slack = 0.011

// backOff is the delay of the manifest's node, in seconds.
const backOff = 1.0

func (l *life) notes() []note {
	data, err := os.ReadFile(filepath.Join(l.journal, "web"))
	if err != nil {
		return nil // nobody has written yet
	}
	var notes []note
	for line := range strings.Lines(string(data)) {
		var n note
		if _, err := fmt.Sscanf(line, "%s %s %s %f\n", &n.name, &n.instance, &n.what, &n.at); err != nil {
			l.problem("line %q of the journal: %v", line, err)
		}
		notes = append(notes, n)
	}
	return notes
}

// run is what one instance of a container did.
type run struct {
	instance string
	begun    float64
	ended    float64 // 0 if it did not end by itself
	did      []string
}

// overlap wants nothing of a run of a container when the next has begun.
func (l *life) overlap(name string) {
	begun := map[string]int{}
	newest := ""
	for _, n := range l.notes() {
		switch {
		case n.name != name:
		case n.what == "begin":
			newest = n.instance
			if begun[n.instance]++; begun[n.instance] > 1 {
				l.problem("instance %s of %s began twice", n.instance, name)
			}
		case begun[n.instance] > 0 && n.instance != newest:
			l.problem("instance %s of %s noted %s when %s had begun", n.instance, name, n.what, newest)
		}
	}
}

func (r run) times(what string) int {
	n := 0
	for _, did := range r.did {
		if did == what {
			n++
		}
	}
	return n
}

// runs are those of a container, in their order.
func (l *life) runs(name string) []run {
	var runs []run
	for _, n := range l.notes() {
		if n.name != name {
			continue
		}
		i := slices.IndexFunc(runs, func(r run) bool { return r.instance == n.instance })
		if i < 0 {
			runs, i = append(runs, run{instance: n.instance}), len(runs)
		}
		r := &runs[i]
		r.did = append(r.did, n.what)
		switch n.what {
		case "begin":
			r.begun = n.at
		case "end":
			r.ended = n.at
		}
	}
	return runs
}

// judgePods looks at the pods at the end of their life, before they are removed.
func (l *life) judgePods() {
	l.watch.mu.Lock()
	boxes := map[string]int{}
	for pod, ids := range l.watch.boxes {
		boxes[pod] = len(ids)
	}
	l.watch.mu.Unlock()
	for _, pod := range []string{"web", "guest"} {
		// One kill, or two, can fall into the making of the sandbox.
		if n := boxes[pod]; n < 1 || n > 1+l.deaths {
			l.problem("pod %s had %d sandboxes", pod, n)
		}
	}
	if l.nth == 0 && (boxes["web"] != 1 || boxes["guest"] != 1) {
		l.problem("without a kill the pods had sandboxes %v", boxes)
	}
	if said := l.said("guest", "read"); said != "s3cret" && said != "s3cret\n" {
		l.problem("the guest's init container said %q", said)
	}
	n := 0
	for line := range strings.Lines(l.said("guest", "ticks")) {
		if n++; line != fmt.Sprintf("tick %d\n", n) && strings.HasSuffix(line, "\n") {
			l.problem("line %d of the guest's log is %q", n, line)
			break
		}
	}
	if runs, n := len(l.runs("app")), int(l.restarts("web", "app")); n+1 < runs || n+1 > runs+l.deaths {
		l.problem("the app's restart count is %d after %d runs and %d kills", n, runs, l.deaths)
	}
	l.judgeLogs()
}

// said is what all runs of a container have said.
func (l *life) said(pod, name string) string {
	texts := l.watch.texts(pod, name)
	said := ""
	for n := range slices.Max(append(slices.Collect(maps.Keys(texts)), 0)) + 1 {
		said += texts[n]
	}
	return said
}

// judgeLogs wants a log for each run of the app, in the order of the runs. A container that was
// created when the daemon died has a number and no run.
func (l *life) judgeLogs() {
	texts, runs := l.watch.texts("web", "app"), l.runs("app")
	k, last := 0, slices.Max(append(slices.Collect(maps.Keys(texts)), 0))
	for n := range last + 1 {
		switch text := texts[n]; {
		case k < len(runs) && text == fmt.Sprintf("run %s\n", runs[k].instance):
			k++
		case text != "":
			l.problem("log %d of the app says %q, of its run %d", n, text, k)
		}
	}
	// The last run may have begun since the logs were read, or not have said anything yet.
	if k < len(runs)-1 || last+1 > len(runs)+l.deaths {
		l.problem("the app ran %d times and has logs up to number %d after %d kills, %d of which are of its runs: %v", len(runs), last, l.deaths, k, texts)
	}
}

// judgeJournal looks at what the containers have noted, after their end.
func (l *life) judgeJournal() {
	for _, n := range l.notes() {
		if n.what == "double" || strings.HasPrefix(n.what, "lost") {
			l.problem("%s noted %s at %v", n.name, n.what, n.at)
		}
	}
	for _, name := range []string{"prepare", "side", "app"} {
		l.overlap(name)
	}
	prepares := l.runs("prepare")
	if len(prepares) != 1 || prepares[0].times("end") != 1 {
		l.problem("the init container ran %v", prepares)
	}
	l.judgeHooks()
	l.judgeBackOff()
}

// judgeBackOff wants no restart before its time. The first waits for nothing, and the first after an
// edit (BO1, BO8).
func (l *life) judgeBackOff() {
	runs, edited := l.runs("app"), false
	for i := 1; i < len(runs); i++ {
		before := runs[i-1]
		if before.ended == 0 {
			l.problem("run %d of the app was ended by another: %v", i-1, before.did)
		}
		waited := runs[i].begun - before.ended
		if i == 1 || waited >= backOff-slack {
			continue
		}
		if edited || runs[i].begun < l.changed {
			l.problem("run %d of the app began %.2f s after run %d ended", i, waited, i-1)
		}
		edited = true
	}
}

// judgeHooks wants two instances of the sidecar, by the edit, and hooks of each: once, and once
// more for each kill at most.
func (l *life) judgeHooks() {
	sides, most := l.runs("side"), 1
	for _, deaths := range l.deathIn {
		most += deaths
	}
	if len(sides) != 2 {
		l.problem("%d instances of the sidecar ran, want one and by the edit another", len(sides))
	}
	for i, s := range sides {
		if n := s.times("poststart"); n < 1 || n > most {
			l.problem("instance %d of the sidecar: postStart ran %d times", i, n)
		}
		if n := s.times("prestop"); n < 1 || n > most {
			l.problem("instance %d of the sidecar: preStop ran %d times", i, n)
		}
		if s.times("term") != 1 || slices.Index(s.did, "prestop") > slices.Index(s.did, "term") {
			l.problem("instance %d of the sidecar did %v", i, s.did)
		}
	}
}
