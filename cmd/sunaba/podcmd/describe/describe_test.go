package describe

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/api"
)

// clock is the time at which kubectl wrote the golden files.
func clock() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func saved(t *testing.T, file string) api.Description {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Pod    *corev1.Pod
		Events []corev1.Event
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	utc(d.Pod)
	return api.Description{Pod: d.Pod, Events: d.Events}
}

// utc makes the pod's times independent of the machine's zone.
func utc(p *corev1.Pod) {
	if p.Status.StartTime != nil {
		p.Status.StartTime.Time = p.Status.StartTime.UTC()
	}
	for _, all := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range all {
			for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
				if state.Running != nil {
					state.Running.StartedAt.Time = state.Running.StartedAt.UTC()
				}
				if state.Terminated != nil {
					state.Terminated.StartedAt.Time, state.Terminated.FinishedAt.Time = state.Terminated.StartedAt.UTC(), state.Terminated.FinishedAt.UTC()
				}
			}
		}
	}
}

// own are the lines that kubectl does not have (B.7).
var own = regexp.MustCompile(`(?m)^(File|Next|Overhead): .*\n`)

// B.7: the output is kubectl's, with File and Next after the head. The files *.kubectl were written
// by kubectl's describer (k8s.io/kubectl v0.36.0) from the objects beside them.
func TestPodIsAsKubectlDescribesIt(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".kubectl")
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := Pod(&b, saved(t, file), clock(), true); err != nil {
				t.Fatal(err)
			}
			if n := len(own.FindAllString(b.String(), -1)); n != 2 {
				t.Errorf("%d lines of our own, want File and Next", n)
			}
			got := strings.Split(own.ReplaceAllString(b.String(), ""), "\n")
			for n, line := range strings.Split(string(want), "\n") {
				if n >= len(got) || got[n] != line {
					t.Fatalf("line %d:\n%s\nwant\n%s\nin\n%s", n+1, strings.Join(got[n:min(n+1, len(got))], ""), line, b.String())
				}
			}
			if len(got) != len(strings.Split(string(want), "\n")) {
				t.Errorf("%d lines too many", len(got)-len(strings.Split(string(want), "\n")))
			}
		})
	}
}

func TestFileAndNext(t *testing.T) {
	d := saved(t, "testdata/web.json")
	d.Next = api.Next{Text: "restart of app (back-off 1m20s, 4th crash)", Until: clock().Add(38 * time.Second)}
	var b bytes.Buffer
	if err := Pod(&b, d, clock(), true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`(?m)^File: +/etc/sunaba/manifests/web.yaml$`, `(?m)^Next: +restart of app in 38s \(back-off 1m20s, 4th crash\)$`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("%s is missing in\n%s", want, b.String())
		}
	}
}

func TestNextText(t *testing.T) {
	now := clock()
	for want, n := range map[string]api.Next{
		"":                                    {},
		"the folder of its image":             {Text: "the folder of its image"},
		"pull of registry/x in 2m":            {Text: "pull of registry/x", Until: now.Add(2 * time.Minute)},
		"restart of app in 38s (back-off 1m)": {Text: "restart of app (back-off 1m)", Until: now.Add(38 * time.Second)},
		"restart of app now":                  {Text: "restart of app", Until: now.Add(-time.Second)},
	} {
		if got := NextText(n, now); got != want {
			t.Errorf("%+v: %q, want %q", n, got, want)
		}
	}
}

func TestProbe(t *testing.T) {
	service := "s"
	for want, p := range map[string]corev1.Probe{
		"grpc <pod>:5 s delay=0s timeout=0s period=0s #success=0 #failure=0": {ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 5, Service: &service}}},
		"unknown delay=1s timeout=2s period=3s #success=4 #failure=5":        {InitialDelaySeconds: 1, TimeoutSeconds: 2, PeriodSeconds: 3, SuccessThreshold: 4, FailureThreshold: 5},
	} {
		if got := Probe(&p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What a stranger writes into a pod gives no line of its own and reaches no terminal.
func TestHostileTexts(t *testing.T) {
	d := saved(t, "testdata/small.json")
	d.Pod.Status.Message = "x\nStatus:  Running\x1b[2J\r"
	d.Pod.Labels = map[string]string{"a\x1b]0;b": "c"}
	d.Events = []corev1.Event{{Type: "Normal", Message: "a\x07b\nc\u0085d"}}
	var b bytes.Buffer
	if err := Pod(&b, d, clock(), true); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\r\x07\u0085") {
		t.Errorf("control characters in %q", b.String())
	}
	for _, want := range []string{`x^JStatus:  Running^[[2J^M`, `a^[]0;b=c`, `a^Gb^Jc\x85d`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

// about is an event about a manifest file.
func about(path, reason string) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Manifest", Name: "old.yaml", FieldPath: path}, Type: "Warning", Reason: reason, Message: "one two",
		FirstTimestamp: metav1.NewTime(clock().Add(-12 * time.Second)), Count: 1, Source: corev1.EventSource{Component: "sunaba"},
	}
}

func TestOtherKinds(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x", Namespace: "default", Labels: map[string]string{"a": "b"}}
	for _, tt := range []struct {
		name     string
		describe func(*bytes.Buffer) error
		want     string
	}{
		{"configmap", func(b *bytes.Buffer) error {
			return ConfigMap(b, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": "one\n\ttwo\n"}, BinaryData: map[string][]byte{"bin": {1, 2}}})
		}, "Name:         x\nNamespace:    default\nLabels:       a=b\nAnnotations:  <none>\n\nData\n====\nk:\n----\none\n    two\n\n\n\nBinaryData\n====\nbin: 2 bytes\n\n"},
		{"secret", func(b *bytes.Buffer) error {
			return Secret(b, &corev1.Secret{ObjectMeta: meta, Type: "Opaque", Data: map[string][]byte{"password": []byte("hunter2")}})
		}, "Name:         x\nNamespace:    default\nLabels:       a=b\nAnnotations:  <none>\n\nType:  Opaque\n\nData\n====\npassword:  7 bytes\n"},
		{"manifest", func(b *bytes.Buffer) error {
			return Manifest(b, &api.Manifest{File: "/etc/m/old.yaml", Status: "Refused", Since: clock().Add(-12 * time.Second), Message: "one\ntwo", Notes: []string{"document 1, namespace prod: is ignored", "1 more"}}, ManifestEvents([]corev1.Event{about("/etc/m/old.yaml", "ManifestRefused"), about("/srv/old.yaml", "ManifestLoaded")}, "/etc/m/old.yaml"), clock())
		}, "File:     /etc/m/old.yaml\nStatus:   Refused\nObjects:  0\nSince:    Fri, 31 Dec 1999 23:59:48 +0000 (12s)\nMessage:\n  one\n  two\nIgnored:\n  document 1, namespace prod: is ignored\n  1 more\n" +
			"Events:\n  Type     Reason           Age   From    Message\n  ----     ------           ----  ----    -------\n  Warning  ManifestRefused  12s   sunaba  one two\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := tt.describe(&b); err != nil || b.String() != tt.want {
				t.Errorf("%v\n%s\nwant\n%s", err, b.String(), tt.want)
			}
		})
	}
}

// The class of service of a pod that others made stands there only where it is known.
func TestQOSClassOfOthersPods(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		class  corev1.PodQOSClass
		want   string
	}{
		{"", "", ""}, {"", corev1.PodQOSBurstable, "Burstable"}, {corev1.RestartPolicyAlways, "", "BestEffort"}, {corev1.RestartPolicyAlways, corev1.PodQOSGuaranteed, "Guaranteed"},
	} {
		var pod corev1.Pod
		pod.Spec.RestartPolicy, pod.Status.QOSClass = c.policy, c.class
		var out strings.Builder
		if err := Pod(&out, api.Description{Pod: &pod}, clock(), true); err != nil {
			t.Fatal(err)
		}
		_, got, found := strings.Cut(out.String(), "QoS Class:")
		got, _, _ = strings.Cut(got, "\n")
		if found != (c.want != "") || strings.TrimSpace(got) != c.want {
			t.Errorf("%v: %q", c, out.String())
		}
	}
}
