package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// found is one key that the two sides have other values for.
type found struct {
	key, agent, kubelet string
	row                 string // which names it; "" is a difference that may not be
}

// always are the differences that any manifest may show, with their rows in docs/pods.md.
var always = mustDifferences()

func mustDifferences() []difference {
	var list []difference
	for _, d := range named {
		list = append(list, difference{regexp.MustCompile("^(?s:" + d.keys + ")$"), d.row})
	}
	return list
}

// compare finds what differs.
func compare(c diffCase, agent, kubelet observation) []found {
	keys := map[string]bool{}
	a, k := upTo(c.last, agent.facts), upTo(c.last, kubelet.facts)
	a["events"], k["events"] = addEvents(a, agent.events, kubelet.events), addEvents(k, kubelet.events, agent.events)
	for key := range a {
		keys[key] = true
	}
	for key := range k {
		keys[key] = true
	}
	var list []found
	note := func(key, agent, kubelet string) {
		list = append(list, found{key, agent, kubelet, rowOf(key, c.differs)})
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if a[key] != k[key] && !(strings.HasPrefix(key, "time.") && (a[key] == "" || k[key] == "")) {
			note(key, a[key], k[key])
		}
	}
	for name, theirs := range kubelet.delays {
		ours := agent.delays[name]
		for i := range min(len(ours), len(theirs)) {
			if !sameDelay(ours[i], theirs[i]) {
				note(fmt.Sprintf("delay.%s/%d", name, i+1), fmt.Sprint(ours[i], "ms"), fmt.Sprint(theirs[i], "ms"))
			}
		}
	}
	return list
}

// sameDelay says whether two delays before a restart are the same: a kubelet looks once a second
// and on its own ticks, so its own are longer, in milliseconds.
func sameDelay(agent, kubelet int) bool { return agent <= kubelet+300 && kubelet-agent <= 2700 }

var (
	attemptKey  = regexp.MustCompile(`^(?:log|time)\.[^.]+\.(\d+)\.log|^exit [^/]+/(\d+)$`)
	attemptItem = regexp.MustCompile(`/(\d+)$`)
)

// upTo are the facts without those of later attempts of containers than last.
func upTo(last int, facts map[string]string) map[string]string {
	facts = maps.Clone(facts)
	if facts == nil {
		facts = map[string]string{}
	}
	later := func(groups []string) bool {
		for _, g := range groups[min(1, len(groups)):] {
			if n, err := strconv.Atoi(g); err == nil && n > last {
				return true
			}
		}
		return false
	}
	if last < 0 {
		return facts
	}
	maps.DeleteFunc(facts, func(key, _ string) bool { return later(attemptKey.FindStringSubmatch(key)) })
	for _, key := range []string{"order.starts", "order.ends"} {
		items := strings.Split(facts[key], ", ")
		items = slices.DeleteFunc(items, func(item string) bool { return later(attemptItem.FindStringSubmatch(item)) })
		facts[key] = strings.Join(items, ", ")
	}
	return facts
}

// addEvents notes that each event was there, and returns those that both sides had in their order.
func addEvents(facts map[string]string, own, other []string) string {
	var both []string
	for _, e := range own {
		facts["event "+e] = "yes"
		if slices.Contains(other, e) && !strings.Contains(e, " Killing ") { // containers are stopped at once
			both = append(both, e)
		}
	}
	return strings.Join(both, "\n")
}

func rowOf(key string, own []difference) string {
	for _, d := range slices.Concat(own, always) {
		if d.keys.MatchString(key) {
			return d.row
		}
	}
	return ""
}

// areaOf is the part of a key that the table counts by.
func areaOf(key string) string {
	if i := strings.IndexAny(key, ". [#"); i > 0 {
		return key[:i]
	}
	return key
}

// judge compares all cases, prints what differs and a table of what was compared, and fails on what
// no row names.
func (s *settings) judge(cases []diffCase, seen map[string]map[string]observation) error {
	compared, differ, rows := map[string]int{}, map[string]int{}, map[string]int{}
	bad := 0
	for _, c := range cases {
		agent, kubelet := seen["agent"][c.name], seen["kubelet"][c.name]
		if err := s.keep(c.name, agent, kubelet); err != nil {
			return err
		}
		for key := range kubelet.facts {
			compared[areaOf(key)]++
		}
		compared["event"] += len(kubelet.events)
		for _, all := range kubelet.delays {
			compared["delay"] += len(all)
		}
		for _, f := range compare(c, agent, kubelet) {
			differ[areaOf(f.key)]++
			rows[f.row]++
			if f.row == "" {
				bad++
			}
			if f.row == "" || s.verbose {
				fmt.Fprintf(s.stdout, "%s: %s  [%s]\n  agent:   %q\n  kubelet: %q\n", c.name, f.key, f.row, f.agent, f.kubelet)
			}
		}
	}
	w := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d manifests\nWHAT\tCOMPARED\tDIFFER\n", len(cases))
	for _, area := range slices.Sorted(maps.Keys(compared)) {
		fmt.Fprintf(w, "%s\t%d\t%d\n", area, compared[area], differ[area])
	}
	fmt.Fprintf(w, "\nNAMED DIFFERENCE\tTIMES\n")
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		if row != "" {
			fmt.Fprintf(w, "%s\t%d\n", row, rows[row])
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d differences that no row of docs/pods.md names", bad)
	}
	return nil
}

// keep writes what was seen of a case on both sides.
func (s *settings) keep(name string, agent, kubelet observation) error {
	for side, o := range map[string]observation{"agent": agent, "kubelet": kubelet} {
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(o.facts)) {
			fmt.Fprintf(&b, "%s = %q\n", key, o.facts[key])
		}
		for _, e := range o.events {
			fmt.Fprintf(&b, "event %s\n", e)
		}
		if err := os.WriteFile(filepath.Join(s.report, name+"."+side+".txt"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
