package pressure

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const (
	mi = 1 << 20
	gi = 1 << 30
)

// parse is a pod as a manifest has it.
func parse(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func threshold(t *testing.T, text string) Threshold {
	t.Helper()
	one, err := ParseThreshold(text)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func TestThresholds(t *testing.T) { // EX1
	for text, want := range map[string]int64{"100Mi": 100 * mi, "10%": 12, "0.5%": 0, "7%": 8, "": 0, "0%": 0} {
		one := threshold(t, text)
		if least := one.of(128); least.Value() != want {
			t.Errorf("%q of 128 is %s, want %d", text, least.String(), want)
		}
		if one.none() != (text == "" || text == "0%") {
			t.Errorf("%q: none is %v", text, one.none())
		}
	}
	for _, text := range []string{"0", "-1Mi", "100%", "-1%", "101%", "x", "%", "NaN%", "Inf%", "1 %%", "10 Mi"} {
		if _, err := ParseThreshold(text); err == nil {
			t.Errorf("%q is a threshold", text)
		}
	}
	for capacity, want := range map[int64]string{4 * gi: "100Mi", 2 * gi: "100Mi", gi: "53687092"} {
		one := DefaultMemory(capacity)
		if least := one.of(capacity); least.String() != want {
			t.Errorf("memory of %d: %s, want %s", capacity, least.String(), want)
		}
	}
	if (Thresholds{Memory: {}}).Any() || !(Thresholds{PIDs: threshold(t, "1%")}).Any() {
		t.Error("wrong answer to whether there is a threshold")
	}
}

func TestMet(t *testing.T) { // EX1, EX3
	all := Thresholds{}
	for i := range signals {
		all[Signal(i)] = threshold(t, "10%")
	}
	full := Readings{}
	for i := range signals {
		full[Signal(i)] = Reading{Available: 9, Capacity: 100}
	}
	// The disk of images comes before that of pods: they may be one.
	if got := all.Met(full); !slices.Equal(got, []Signal{Memory, ImageFS, ImageInodes, NodeFS, NodeInodes, LogFS, LogInodes, PIDs}) {
		t.Errorf("met %v", got)
	}
	enough := Readings{Memory: {10, 100}, NodeFS: {11, 100}, PIDs: {9, 100}}
	if got := all.Met(enough); !slices.Equal(got, []Signal{PIDs}) {
		t.Errorf("met %v", got)
	}
	all[PIDs] = Threshold{}
	if got := all.Met(enough); len(got) != 0 {
		t.Errorf("met %v without a threshold", got)
	}
}

const limitedPod = `
metadata: {name: web}
spec:
  volumes:
  - {name: a, emptyDir: {sizeLimit: 1Gi}}
  - {name: b, emptyDir: {}}
  - {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: c, configMap: {name: c}}
  containers:
  - {name: app, image: x, resources: {limits: {ephemeral-storage: 100Mi}}}
  - {name: free, image: x}
`

func TestOverLimit(t *testing.T) {
	const (
		volume    = `Usage of EmptyDir volume "a" exceeds the limit "1Gi". `
		whole     = "Pod ephemeral local storage usage exceeds the total limit of containers 100Mi. "
		container = `Container app exceeded its local ephemeral storage limit "100Mi". `
	)
	two := strings.Replace(limitedPod, "name: free, image: x", "name: free, image: x, resources: {limits: {ephemeral-storage: 400Mi}}", 1)
	app := func(layer, logs int64) Use {
		return Use{Containers: []ContainerUse{{Name: "app", Layer: Room{Bytes: layer}, Logs: Room{Bytes: logs}}}}
	}
	volumes := func(name string, bytes int64) Use { return Use{Volumes: map[string]Room{name: {Bytes: bytes}}} }
	for _, tt := range []struct {
		rule, pod string
		use       Use
		apart     bool
		want      string
	}{
		{"VO5 at the limit", two, volumes("a", gi), false, strings.Replace(whole, "100Mi", "500Mi", 1)},
		{"VO5 above", two, volumes("a", gi+1), false, volume},
		{"VO5 no limit", strings.Replace(limitedPod, "100Mi", "90Gi", 1), volumes("b", 3*gi), false, ""},
		{"VO5 memory is the file system's", limitedPod, volumes("m", 2*mi), false, ""},
		{"RE13 at the limit", limitedPod, app(99*mi, mi), false, ""},
		{"RE13 the pod comes first", limitedPod, app(100*mi, 1), false, whole},
		{"RE13 volumes count", limitedPod, volumes("b", 100*mi+1), false, whole},
		{"RE13 config maps count", limitedPod, volumes("c", 100*mi+1), false, whole},
		{"RE13 a container", two, app(100*mi, 1), false, container},
		{"RE13 logs of a container", two, app(0, 100*mi+1), true, container},
		{"RE13 a layer elsewhere", two, app(101*mi, 0), true, ""},
		{"RE13 others of the pod", limitedPod, Use{Containers: []ContainerUse{{Name: "free", Layer: Room{Bytes: 101 * mi}}}}, false, whole},
		{"RE13 others of two", two, Use{Containers: []ContainerUse{{Name: "free", Layer: Room{Bytes: 101 * mi}}}}, false, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := OverLimit(parse(t, tt.pod), tt.use, tt.apart); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	for text, want := range map[string][2]bool{
		limitedPod: {true, true}, strings.Replace(limitedPod, "sizeLimit: 1Gi", "", 1): {false, true},
		"spec: {containers: [{name: a, resources: {limits: {memory: 1Gi}}}], volumes: [{name: a, emptyDir: {sizeLimit: 0}}]}": {false, false},
		"spec: {initContainers: [{name: a, resources: {limits: {ephemeral-storage: 1Gi}}}]}":                                  {false, true},
	} {
		if volumes, storage := Limited(parse(t, text)); volumes != want[0] || storage != want[1] {
			t.Errorf("%s: %v, %v", text, volumes, storage)
		}
	}
}

// candidate is a pod with a request and what it takes.
func candidate(name, request string, priority int32, memory int64) Candidate {
	p := &corev1.Pod{}
	p.Name, p.UID, p.Spec.Priority = name, types.UID(name), &priority
	c := corev1.Container{Name: "app"}
	if request != "" {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request), corev1.ResourceEphemeralStorage: resource.MustParse(request)}
	}
	p.Spec.Containers = []corev1.Container{c}
	return Candidate{p, &Use{Memory: memory, Processes: memory / mi, Containers: []ContainerUse{
		{Name: "app", Memory: memory, Layer: Room{memory / 2, memory / mi}, Logs: Room{memory / 2, 0}},
	}}}
}

func TestRank(t *testing.T) { // EX6
	unknown := candidate("unknown", "", 100, 0)
	unknown.Use = nil
	for _, tt := range []struct {
		rule   string
		signal Signal
		apart  bool
		pods   []Candidate
		want   string
	}{
		{"above the request first", Memory, false, []Candidate{candidate("modest", "1Gi", 0, gi), candidate("above", "1Mi", 9, 2*mi)}, "above modest"},
		{"then the lowest priority", Memory, false, []Candidate{candidate("high", "", 5, gi), candidate("low", "", -5, mi), candidate("none", "", 0, mi)}, "low none high"},
		{"then the most above the request", Memory, false, []Candidate{candidate("a", "100Mi", 0, 300*mi), candidate("b", "", 0, 250*mi)}, "b a"},
		{"critical never", Memory, false, []Candidate{candidate("critical", "", 2000000000, gi), candidate("a", "", 1999999999, mi)}, "a"},
		{"unknown first", Memory, false, []Candidate{candidate("a", "", 0, gi), unknown}, "unknown a"},
		{"disk", NodeFS, false, []Candidate{candidate("modest", "1Gi", 0, gi), candidate("above", "1Mi", 9, 4*mi)}, "above modest"},
		{"disk of images apart: layers only", ImageFS, true, []Candidate{candidate("a", "6Mi", 0, 8*mi), candidate("b", "1Mi", 0, 4*mi)}, "b a"},
		{"inodes have no request", NodeInodes, false, []Candidate{candidate("few", "", 0, mi), candidate("many", "1Gi", 0, 2*mi), candidate("low", "1Gi", -1, 0)}, "low many few"},
		{"processes go by priority", PIDs, false, []Candidate{candidate("many", "", 1, gi), candidate("few", "1Gi", 0, mi), candidate("more", "1Gi", 0, 2*mi)}, "more few many"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var names []string
			for _, c := range Rank(tt.signal, tt.pods, tt.apart, false) {
				names = append(names, c.Pod.Name)
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// EX6: where logs have a file system of their own, only they count on it, and they do not on the
// pods'.
func TestRankLogsApart(t *testing.T) {
	talker, writer := candidate("talker", "", 0, 0), candidate("writer", "", 0, 0)
	talker.Use = &Use{Containers: []ContainerUse{{Logs: Room{Bytes: 9 * mi, Inodes: 2}}}}
	writer.Use = &Use{Containers: []ContainerUse{{Logs: Room{Bytes: mi, Inodes: 9}}}, Volumes: map[string]Room{"v": {Bytes: 4 * mi, Inodes: 4}}}
	for signal, want := range map[Signal]string{LogFS: "talker", LogInodes: "writer", NodeFS: "writer", NodeInodes: "writer"} {
		if got := Rank(signal, []Candidate{writer, talker}, false, true)[0].Pod.Name; got != want {
			t.Errorf("signal %d: %s first, want %s", signal, got, want)
		}
	}
	if got := Rank(NodeFS, []Candidate{writer, talker}, false, false)[0].Pod.Name; got != "talker" {
		t.Errorf("together: %s first", got)
	}
}

func TestMessage(t *testing.T) { // EX7
	thresholds := Thresholds{Memory: threshold(t, "100Mi"), NodeFS: threshold(t, "10%"), NodeInodes: threshold(t, "5%")}
	readings := Readings{Memory: {60 * mi, gi}, NodeFS: {5 * mi, 100 * mi}, NodeInodes: {400, 10000}}
	small := candidate("web", "400Mi", 0, 300*mi)
	pod := candidate("web", "", 0, 300*mi)
	pod.Pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("10Mi")}}
	unknown := candidate("web", "", 0, 0)
	unknown.Use = nil
	const low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. "
	for _, tt := range []struct {
		signal Signal
		c      Candidate
		want   string
	}{
		{Memory, candidate("web", "", 0, 300*mi), low + "Container app was using 300Mi, request is 0, has larger consumption of memory. "},
		{Memory, small, low},
		{Memory, unknown, low},
		{Memory, pod, low + "Pod web was using 300Mi, request is 10Mi, has larger consumption of memory. Container app was using 300Mi, request is 0, has larger consumption of memory. "},
		{NodeFS, candidate("web", "1Mi", 0, 300*mi), "The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, available: 5Mi. Container app was using 300Mi, request is 1Mi, has larger consumption of ephemeral-storage. "},
		{NodeInodes, candidate("web", "", 0, 300*mi), "The node was low on resource: inodes. Threshold quantity: 500, available: 400. "},
		{PIDs, candidate("web", "", 0, 300*mi), "The node was low on resource: pids. "},
	} {
		if got := Message(tt.signal, thresholds, readings, tt.c); got != tt.want {
			t.Errorf("\n%q, want\n%q", got, tt.want)
		}
	}
}

func TestConditions(t *testing.T) { // EX9, NC1
	c := &Conditions{Transition: 5 * time.Minute}
	if c.List() != nil {
		t.Error("conditions before the first look")
	}
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		after  time.Duration
		met    []Signal
		events string
		active string
	}{
		{0, nil, "", "[]"},
		{10 * time.Second, []Signal{ImageFS, NodeFS}, "NodeHasDiskPressure", "[DiskPressure]"},
		{20 * time.Second, []Signal{Memory, NodeInodes}, "NodeHasInsufficientMemory", "[DiskPressure MemoryPressure]"},
		{30 * time.Second, []Signal{PIDs}, "NodeHasInsufficientPID", "[DiskPressure MemoryPressure PIDPressure]"},
		{5*time.Minute + 19*time.Second, nil, "", "[DiskPressure MemoryPressure PIDPressure]"},
		{5*time.Minute + 20*time.Second, []Signal{Memory}, "NodeHasNoDiskPressure", "[MemoryPressure PIDPressure]"},
		{5*time.Minute + 30*time.Second, nil, "NodeHasSufficientPID", "[MemoryPressure]"},
		{10*time.Minute + 20*time.Second, nil, "NodeHasSufficientMemory", "[]"},
	} {
		events := c.See(tt.met, start.Add(tt.after))
		if got := strings.Join(events, " "); got != tt.events {
			t.Errorf("after %s: events %q, want %q", tt.after, got, tt.events)
		}
		if got := strings.TrimPrefix(Refuse(&corev1.Pod{}, c.Active()), "node had condition: "); got != tt.active && (got != "" || tt.active != "[]") {
			t.Errorf("after %s: active %s, want %s", tt.after, got, tt.active)
		}
	}
	list := c.List()
	if len(list) != 3 || list[1].Type != corev1.NodeDiskPressure || list[1].Status != corev1.ConditionFalse || list[1].Reason != "HasNoDiskPressure" ||
		!list[1].LastTransitionTime.Time.Equal(start.Add(5*time.Minute+20*time.Second)) || !list[1].LastHeartbeatTime.Time.Equal(start.Add(10*time.Minute+20*time.Second)) {
		t.Errorf("%+v", list)
	}
	c.See([]Signal{PIDs}, start) // the clock was set back
	if list := c.List(); list[2].Status != corev1.ConditionTrue || list[2].Reason != "HasInsufficientPID" {
		t.Errorf("%+v", list)
	}
	if c.See(nil, start.Add(5*time.Minute)); len(c.Active()) != 0 {
		t.Errorf("the clock was set back, and conditions stay: %v", c.Active())
	}
	now := &Conditions{}
	if now.See([]Signal{Memory}, start); !now.Holds(corev1.NodeMemoryPressure) {
		t.Error("without a transition a condition does not hold when it is seen")
	}
	if now.See(nil, start.Add(time.Second)); now.Holds(corev1.NodeMemoryPressure) {
		t.Error("without a transition a condition stays")
	}
}

func TestRefuse(t *testing.T) { // EX10
	memory, disk := []corev1.NodeConditionType{corev1.NodeMemoryPressure}, []corev1.NodeConditionType{corev1.NodeDiskPressure}
	both := []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure}
	const (
		best      = "spec: {containers: [{name: a}]}"
		burstable = "spec: {containers: [{name: a, resources: {requests: {memory: 1Mi}}}]}"
		critical  = "spec: {priority: 2000000000, containers: [{name: a}]}"
		tolerant  = "spec: {containers: [{name: a}], tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}]}"
		all       = "spec: {containers: [{name: a}], tolerations: [{operator: Exists}]}"
		others    = "spec: {containers: [{name: a}], tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoExecute}, {key: x, operator: Exists}, {key: node.kubernetes.io/memory-pressure, value: x}]}"
		equal     = "spec: {containers: [{name: a}], tolerations: [{key: node.kubernetes.io/memory-pressure}]}"
	)
	for _, tt := range []struct {
		pod    string
		active []corev1.NodeConditionType
		want   string
	}{
		{best, nil, ""}, {best, memory, "node had condition: [MemoryPressure]"}, {best, disk, "node had condition: [DiskPressure]"},
		{burstable, memory, ""}, {burstable, disk, "node had condition: [DiskPressure]"}, {burstable, both, "node had condition: [DiskPressure MemoryPressure]"},
		{critical, both, ""}, {tolerant, memory, ""}, {all, memory, ""}, {equal, memory, ""}, {tolerant, disk, "node had condition: [DiskPressure]"},
		{others, memory, "node had condition: [MemoryPressure]"},
	} {
		if got := Refuse(parse(t, tt.pod), tt.active); got != tt.want {
			t.Errorf("%s under %v: %q, want %q", tt.pod, tt.active, got, tt.want)
		}
	}
}

func TestEviction(t *testing.T) { // EX8
	now := time.Unix(1000, 0)
	pauses := func(every time.Duration) (list []time.Duration) {
		var last *Eviction
		at := now
		for range 7 {
			last = Evict(last, "", time.Hour, at)
			list = append(list, last.Until.Sub(at))
			at = last.Until.Add(every)
		}
		return list
	}
	if got := pauses(time.Minute); !slices.Equal(got, []time.Duration{1e10, 2e10, 4e10, 8e10, 16e10, 3e11, 3e11}) {
		t.Errorf("pauses %v", got)
	}
	if got := pauses(10 * time.Minute); !slices.Equal(got[:2], []time.Duration{1e10, 1e10}) {
		t.Errorf("pauses of a pod that runs long %v", got)
	}
	e := Evict(nil, corev1.NodeDiskPressure, 5*time.Minute, now)
	c := &Conditions{Transition: 5 * time.Minute}
	c.See([]Signal{NodeFS}, now.Add(time.Minute))
	for after, want := range map[time.Duration]bool{5*time.Minute - 1: false, 5 * time.Minute: false, 6 * time.Minute: true} {
		at := now.Add(after)
		seen := *c
		seen.active = c.Active()
		seen.See(nil, at)
		if got := e.Over(&seen, at); got != want {
			t.Errorf("over after %s: %v", after, got)
		}
	}
	if !Evict(nil, "", time.Hour, now).Over(c, now.Add(10*time.Second)) {
		t.Error("a limit of its own waits for the node")
	}
	if e.Over(&Conditions{}, now.Add(5*time.Minute-1)) {
		t.Error("a new start of the agent forgets the time for which the pressure must be gone")
	}
	if e.Shift(now.Add(-time.Hour)); !e.Until.Equal(now.Add(-55 * time.Minute)) {
		t.Errorf("the clock was set back: until %v", e.Until)
	}
}
