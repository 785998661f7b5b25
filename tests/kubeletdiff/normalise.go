package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// normaliser takes out of texts what differs between two runs of one manifest by its nature.
type normaliser struct{ known *strings.Replacer }

// normaliser is one for a running case.
func (r *running) normaliser() *normaliser {
	pairs := []string{}
	add := func(from, to string) {
		if from != "" {
			pairs = append(pairs, from, to)
		}
	}
	pods, _ := r.w.of(r.key())
	for _, p := range pods {
		for _, ip := range p.Status.PodIPs {
			add(ip.IP, "POD-IP")
		}
	}
	add(r.uid(), "UID")
	add(r.host, "HOST")
	add(r.dir, "DIR")
	if r.suffix != "" {
		add(r.name+r.suffix, r.name)
	}
	return newNormaliser(pairs...)
}

func newNormaliser(pairs ...string) *normaliser {
	return &normaliser{strings.NewReplacer(pairs...)}
}

var patterns = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`(^|[^:0-9a-f])[0-9a-f]{64}\b`), "${1}ID"},
	{regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?m?s \((\d+m)?\d+(\.\d+)?m?s including waiting\)`), "DURATION"},
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "OTHER-IP"},
	{regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`), "..DATA"},
	{regexp.MustCompile(`DIR/(root|state|kubelet)/[^\s"]+`), "OWN-FILE"},
	{regexp.MustCompile(`rpc error: code = \w+ desc = `), ""}, // a kubelet asks over a socket
	{regexp.MustCompile(`kube-(probe|lifecycle)/\S+`), "kube-${1}/VERSION"},
	{regexp.MustCompile(`(OTHER-IP|POD-IP):\d{5}\b`), "${1}:PORT"},
}

// text is a text without what differs by its nature.
func (n *normaliser) text(s string) string {
	s = n.known.Replace(s)
	for _, p := range patterns {
		s = p.from.ReplaceAllString(s, p.to)
	}
	return s
}

// flatten notes each value of an object by its path. Items of a list are named by what tells them
// apart, so that one that is missing does not shift the others.
func (n *normaliser) flatten(facts map[string]string, path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	n.walk(facts, path, v)
	return nil
}

func (n *normaliser) walk(facts map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		decodeEnv(path, v)
		for key, item := range v {
			n.walk(facts, path+"."+key, item)
		}
	case []any:
		names := map[string]bool{}
		var order []string
		for i, item := range v {
			name := n.text(itemName(item))
			if text, ok := item.(string); ok && isSet(path) {
				name = text
			}
			if name == "" || names[name] {
				name = fmt.Sprint(i)
			}
			names[name] = true
			order = append(order, name)
			n.walk(facts, path+"["+name+"]", item)
		}
		if len(order) > 1 && !isSet(path) {
			facts[path+"#"] = strings.Join(order, " ")
		}
	case nil:
	default:
		if s := n.text(fmt.Sprint(v)); s != "" && s != "false" && s != "0" {
			facts[path] = s // in JSON of the CRI, a default and no value are the same
		}
	}
}

// isSet says that a list has no order that counts: a kubelet makes it of a map.
func isSet(path string) bool {
	return strings.HasSuffix(path, "Paths") || strings.HasSuffix(path, ".dnsConfig.options") || strings.HasSuffix(path, ".envs")
}

// decodeEnv makes text of the value of a variable in a CRI configuration, which is bytes in JSON.
func decodeEnv(path string, v map[string]any) {
	if value, ok := v["value"].(string); ok && strings.Contains(path, ".envs[") {
		if data, err := base64.StdEncoding.DecodeString(value); err == nil {
			v["value"] = string(data)
		}
	}
}

// itemName is what tells an item of a list apart from the others.
func itemName(item any) string {
	object, ok := item.(map[string]any)
	if !ok {
		return ""
	}
	for _, key := range []string{"type", "name", "mountPath", "container_path", "containerPath", "key"} {
		if name, ok := object[key].(string); ok {
			return name
		}
	}
	return ""
}

// pendingUnseen says that a pod was Pending between two looks: at the first, which was at a time,
// it had no sandbox, and at the second it was more than Pending.
func pendingUnseen(first time.Time, pods []corev1.Pod, stream []criEvent) bool {
	return len(pods) > 0 && pods[0].Status.Phase != corev1.PodPending && len(stream) > 0 && !first.IsZero() && first.Before(stream[0].at)
}

// transitions notes how the pod changed: phases, and reasons for which containers waited. pending
// says that it was Pending before.
func (n *normaliser) transitions(facts map[string]string, pods []corev1.Pod, pending bool) {
	var phases []string
	if pending {
		phases = append(phases, string(corev1.PodPending))
	}
	waits := map[string][]string{}
	for _, p := range pods {
		if phase := string(p.Status.Phase); phase != "" && (len(phases) == 0 || phases[len(phases)-1] != phase) {
			phases = append(phases, phase)
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && !slices.Contains(waits[c.Name], w.Reason) {
				waits[c.Name] = append(waits[c.Name], w.Reason)
			}
		}
	}
	if n := len(phases); n > 1 && (phases[n-1] == "Succeeded" || phases[n-1] == "Failed") { // Running may have been short
		phases = slices.DeleteFunc(phases, func(p string) bool { return p == "Running" })
	}
	facts["order.phases"] = strings.Join(phases, ", ")
	for name, reasons := range waits {
		// Short ones are not seen by one who asks; these last.
		reasons = slices.DeleteFunc(reasons, func(r string) bool { return r == "ContainerCreating" || r == "PodInitializing" })
		slices.Sort(reasons)
		if len(reasons) > 0 {
			facts["waited."+name] = strings.Join(reasons, ", ")
		}
	}
}

// containerLog is a log in CRI's format: its lines, those of stdout before those of stderr since
// two streams have no order between each other, and when lines that are there for their time
// were written, by their text.
type containerLog struct {
	lines []string
	marks map[string][]time.Time
}

func parseLog(data string) containerLog {
	log := containerLog{marks: map[string][]time.Time{}}
	for line := range strings.Lines(data) {
		stamp, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		stream, rest, _ := strings.Cut(rest, " ")
		tag, text, _ := strings.Cut(rest, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if mark, found := strings.CutPrefix(text, "~ "); found && err == nil {
			log.marks[mark] = append(log.marks[mark], at)
			continue
		}
		log.lines = append(log.lines, stream+" "+tag+" "+text)
	}
	slices.SortStableFunc(log.lines, func(a, b string) int {
		streamA, _, _ := strings.Cut(a, " ")
		streamB, _, _ := strings.Cut(b, " ")
		return strings.Compare(streamB, streamA)
	})
	return log
}

// delays are the times from the end of each run of a container to the start of the next, in
// milliseconds.
func delays(stream []criEvent) map[string][]int {
	ended, list := map[string]time.Time{}, map[string][]int{}
	for _, e := range stream {
		verb, id, _ := strings.Cut(e.what, " ")
		name, _, isContainer := strings.Cut(id, "/")
		switch {
		case isContainer && verb == "stopped" && e.status != nil:
			ended[name] = time.Unix(0, e.status.GetFinishedAt())
		case isContainer && verb == "started" && e.status != nil && !ended[name].IsZero():
			list[name] = append(list[name], int(time.Unix(0, e.status.GetStartedAt()).Sub(ended[name]).Milliseconds()))
		}
	}
	return list
}

// maxGaps is how many times between lines are compared.
const maxGaps = 3

// gaps are the times between lines, in whole seconds.
func gaps(times []time.Time) []string {
	var list []string
	for i := 1; i < len(times) && i <= maxGaps; i++ {
		list = append(list, fmt.Sprintf("%.0fs", math.Round(times[i].Sub(times[i-1]).Seconds())))
	}
	return list
}
