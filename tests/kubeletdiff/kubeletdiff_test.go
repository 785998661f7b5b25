package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Every manifest can be read, and every row that it or the table names is one of docs/pods.md.
func TestRowsAreDocumented(t *testing.T) {
	docs, err := os.ReadFile("../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(docs), "## What differs from a kubelet")
	table, _, _ = strings.Cut(table, "\n## ")
	cases, err := readCases("testdata", regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 40 {
		t.Errorf("%d manifests", len(cases))
	}
	all := slices.Clone(always)
	for _, c := range cases {
		all = append(all, c.differs...)
	}
	for _, d := range all {
		if !strings.HasPrefix(d.row, inner) && !strings.Contains(table, "\n| "+d.row) {
			t.Errorf("docs/pods.md has no row %q", d.row)
		}
	}
}

func TestParseCase(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
	c, err := parseCase("a", "#: wait phase=Failed\n#: attempts 2\n#: differs log\\..*: a row: of words\n"+pod)
	if err != nil || len(c.steps) != 1 || c.last != 2 || len(c.differs) != 1 || c.differs[0].row != "a row: of words" || !c.differs[0].keys.MatchString("log.x") {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parseCase("a", pod); err != nil || len(c.steps) != 1 || c.last != -1 {
		t.Errorf("without a header: %+v, %v", c, err)
	}
	for name, text := range map[string]string{
		"an unknown step": "#: dance\n" + pod, "a step without its argument": "#: wait\n" + pod, "a difference without a row": "#: differs x\n" + pod,
		"another name": strings.Replace(pod, "name: a", "name: b", 1), "an unknown field": pod + "spce: {}\n",
	} {
		if _, err := parseCase("a", text); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestNormalisedText(t *testing.T) {
	n := newNormaliser("10.1.0.7", "POD-IP", "/tmp/x/agent", "DIR", "web-till-4", "web")
	id := strings.Repeat("0a", 32)
	for from, want := range map[string]string{
		"web-till-4 at 2026-11-23T20:00:00.5Z":                     "web at TIME",
		`container "` + id + `" of sha256:` + id:                   `container "ID" of sha256:` + id,
		"in 1.2s (1m2.3s including waiting). Image":                "in DURATION. Image",
		"read 10.1.0.1:43210->10.1.0.7:8080":                       "read OTHER-IP:PORT->POD-IP:8080",
		"/tmp/x/agent/root/pods/1/volumes/data, host":              "OWN-FILE host",
		"rpc error: code = NotFound desc = no such image":          "no such image",
		"kube-probe/1.36 and kube-lifecycle/sunaba-0.1.0-dev here": "kube-probe/VERSION and kube-lifecycle/VERSION here",
	} {
		if got := n.text(from); got != want {
			t.Errorf("%q: %q, want %q", from, got, want)
		}
	}
}

func TestFlatten(t *testing.T) {
	facts := map[string]string{}
	value := map[string]any{
		"phase": "Running", "zero": 0, "no": false,
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "Initialized"}},
		"envs":       []any{map[string]any{"key": "A", "value": "YQ=="}}, "maskedPaths": []any{"/b", "/a"},
	}
	if err := newNormaliser().flatten(facts, "x", value); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"x.phase": "Running", "x.conditions[Ready].type": "Ready", "x.conditions[Ready].status": "True", "x.conditions[Initialized].type": "Initialized",
		"x.conditions#": "Ready Initialized", "x.envs[A].key": "A", "x.envs[A].value": "a", "x.maskedPaths[/a]": "/a", "x.maskedPaths[/b]": "/b",
	}
	if fmt.Sprint(facts) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", facts, want)
	}
}

func TestCompare(t *testing.T) {
	c, err := parseCase("a", "#: attempts 1\n#: differs fact\\.b: a row\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
	if err != nil {
		t.Fatal(err)
	}
	agent := observation{
		facts:  map[string]string{"fact.a": "1", "fact.b": "1", "log.app.2.log": "x", "order.starts": "app/0, app/1", "time.app.0.log p/1": "1s"},
		events: []string{"one", "two"}, delays: map[string][]int{"app": {5, 4000}},
	}
	kubelet := observation{
		facts:  map[string]string{"fact.a": "1", "fact.b": "2", "fact.c": "3", "order.starts": "app/0, app/1, app/2", "time.app.0.log p/1": "2s", "time.app.0.log p/2": "1s"},
		events: []string{"two", "one", "three"}, delays: map[string][]int{"app": {900, 8000}},
	}
	var got []string
	for _, f := range compare(c, agent, kubelet) {
		got = append(got, f.key+"="+f.row)
	}
	want := []string{"event three=", "events=", "fact.b=a row", "fact.c=", "time.app.0.log p/1=", "delay.app/2="}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLog(t *testing.T) {
	log := parseLog("2026-11-23T20:00:00.1Z stdout F one\n2026-11-23T20:00:01Z stdout F ~ probe\n2026-11-23T20:00:02.1Z stderr F ~ probe\n2026-11-23T20:00:05Z stdout F ~ probe\n")
	if len(log.lines) != 1 || log.lines[0] != "stdout F one" || !slices.Equal(gaps(log.marks["probe"]), []string{"1s", "3s"}) {
		t.Errorf("%+v, %q", log, gaps(log.marks["probe"]))
	}
}

func TestLogOfTwoStreams(t *testing.T) {
	log := parseLog("2026-11-23T20:00:00Z stderr F b\n2026-11-23T20:00:01Z stdout F z\n2026-11-23T20:00:02Z stderr F a\n2026-11-23T20:00:03Z stdout F y\n")
	if want := []string{"stdout F z", "stdout F y", "stderr F b", "stderr F a"}; !slices.Equal(log.lines, want) {
		t.Errorf("%q, want %q", log.lines, want)
	}
}

func TestEventLog(t *testing.T) {
	line := func(reason string) string {
		return `{"msg":"Event occurred","object":{"name":"web","namespace":"default"},"fieldPath":"spec","type":"Normal","reason":"` + reason + `","message":"m"}` + "\n"
	}
	path := filepath.Join(t.TempDir(), "log")
	log := &eventLog{path: path}
	written := ""
	for _, step := range []struct{ adds, want string }{
		{line("Pulled") + "{}\nno JSON\n", "Pulled"}, {line("Created")[:30], "Pulled"}, {line("Created")[30:], "Pulled Created"}, {line("Started"), "Pulled Created Started"},
	} {
		written += step.adds
		if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := log.read()
		var got []string
		for _, e := range list {
			got = append(got, e.reason)
		}
		if err != nil || strings.Join(got, " ") != step.want {
			t.Errorf("after %q: %q, %v, want %q", step.adds, got, err, step.want)
		}
	}
}

func TestNewestMade(t *testing.T) {
	made := func(name string, attempt uint32) criEvent {
		return criEvent{made: &containerInfo{}, status: &runtime.ContainerStatus{Metadata: &runtime.ContainerMetadata{Name: name, Attempt: attempt}}}
	}
	stream := []criEvent{{what: "created sandbox"}, made("a", 0), made("b", 0), made("a", 1), {what: "started a/2", status: made("a", 2).status}, made("a", 2)}
	for last, want := range map[int]uint32{-1: 2, 0: 0, 1: 1} {
		got := newestMade(stream, last)
		if len(got) != 2 || got["a"].status.GetMetadata().GetAttempt() != want {
			t.Errorf("up to %d: %v", last, got)
		}
	}
}

func TestDelays(t *testing.T) {
	at := func(s int64) int64 { return s * int64(time.Second) }
	got := delays([]criEvent{
		{what: "started sandbox"},
		{what: "started app/0", status: &runtime.ContainerStatus{StartedAt: at(1)}}, {what: "stopped app/0", status: &runtime.ContainerStatus{FinishedAt: at(2)}},
		{what: "started app/1", status: &runtime.ContainerStatus{StartedAt: at(2)}}, {what: "stopped app/1", status: &runtime.ContainerStatus{FinishedAt: at(3)}},
		{what: "started app/2", status: &runtime.ContainerStatus{StartedAt: at(7)}},
	})
	if fmt.Sprint(got) != "map[app:[0 4000]]" {
		t.Errorf("%v", got)
	}
}

func TestHolds(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodRunning, Reason: "Because", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "a", RestartCount: 2, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}},
	}}
	for condition, want := range map[string]bool{
		"ready": false, "phase=Running": true, "reason=Because": true, "condition=Ready=False": true, "waiting=a:CrashLoopBackOff": true, "waiting=a:Other": false,
		"restarts=a:2": true, "restarts=a:3": false, "terminated=a": false, "running=b": false, "nonsense": false,
	} {
		if holds(p, condition) != want {
			t.Errorf("%s: %v", condition, !want)
		}
	}
}

func TestPendingUnseen(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	running := []corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodRunning}}}
	stream := []criEvent{{at: at(5), what: "created sandbox"}}
	for name, c := range map[string]struct {
		first  time.Time
		pods   []corev1.Pod
		stream []criEvent
		want   bool
	}{
		"between two looks":          {at(4), running, stream, true},
		"a look after its start":     {at(6), running, stream, false},
		"it failed at once":          {at(4), []corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodFailed}}}, stream, true},
		"seen as Pending":            {at(4), []corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodPending}}}, stream, false},
		"a server that told nothing": {at(4), running, nil, false},
		"a pod nobody saw":           {at(4), nil, stream, false},
		"no look before":             {time.Time{}, running, stream, false},
	} {
		if got := pendingUnseen(c.first, c.pods, c.stream); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	facts := map[string]string{}
	if newNormaliser().transitions(facts, running, true); facts["order.phases"] != "Pending, Running" {
		t.Errorf("%v", facts)
	}
}

func TestTransitions(t *testing.T) {
	pod := func(phase corev1.PodPhase, reason string) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}}
	}
	facts := map[string]string{}
	newNormaliser().transitions(facts, []corev1.Pod{
		pod(corev1.PodPending, "ContainerCreating"), pod(corev1.PodRunning, "ErrImagePull"), pod(corev1.PodRunning, "CrashLoopBackOff"), pod(corev1.PodFailed, "ErrImagePull"),
	}, false)
	if facts["order.phases"] != "Pending, Failed" || facts["waited.a"] != "CrashLoopBackOff, ErrImagePull" {
		t.Errorf("%v", facts)
	}
}
