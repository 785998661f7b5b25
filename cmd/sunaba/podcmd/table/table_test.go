package table

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/api"
)

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func ago(d time.Duration) metav1.Time { return metav1.NewTime(clock().Add(-d)) }

func meta(name string, age time.Duration) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", CreationTimestamp: ago(age), Labels: map[string]string{"b": "2", "a": "1"}}
}

func web() *corev1.Pod {
	class := "wasm"
	p := &corev1.Pod{ObjectMeta: meta("web", 31*time.Second), Spec: corev1.PodSpec{NodeName: "till-4", RuntimeClassName: &class, Containers: []corev1.Container{{Name: "app"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.88.0.9", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
	p.Annotations = map[string]string{api.AnnotationFile: "/etc/sunaba/manifests/web.yaml"}
	return p
}

// B.6: the columns of each kind.
func TestTables(t *testing.T) {
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare", Namespace: "prod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	event := &corev1.Event{ObjectMeta: meta("web.1", 0), Type: "Warning", Reason: "BackOff", Message: " Back-off\nmore", Count: 12, FirstTimestamp: ago(4 * time.Minute), LastTimestamp: ago(5 * time.Second),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"}}
	class := "standard"
	for _, tt := range []struct {
		name, kind string
		o          Options
		objects    []any
		want       []string
	}{
		{"pods", "pods", Options{}, []any{web(), bare}, []string{
			"NAME   READY   STATUS    RESTARTS   AGE",
			"web    1/1     Running   0          31s",
			"bare   0/1     Pending   0          <unknown>",
		}},
		{"made before the clock was set back", "cm", Options{}, []any{&corev1.ConfigMap{ObjectMeta: meta("c", -time.Hour)}}, []string{
			"NAME   DATA   AGE",
			"c      0      0s",
		}},
		{"wide pods of all namespaces with labels", "pods", Options{Wide: true, Namespace: true, Labels: true}, []any{web(), bare}, []string{
			"NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE         IP          NODE     CLASS    FILE                             LABELS",
			"default     web    1/1     Running   0          31s         10.88.0.9   till-4   wasm     /etc/sunaba/manifests/web.yaml   a=1,b=2",
			"prod        bare   0/1     Pending   0          <unknown>   <none>      <none>   <none>   <none>                           <none>",
		}},
		{"configmaps", "cm", Options{Kind: true}, []any{&corev1.ConfigMap{ObjectMeta: meta("c", 4*time.Hour), Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}}}, []string{
			"NAME          DATA   AGE",
			"configmap/c   2      4h",
		}},
		{"secrets", "secrets", Options{}, []any{&corev1.Secret{ObjectMeta: meta("s", 12*24*time.Hour), Type: "Opaque", Data: map[string][]byte{"a": nil}}}, []string{
			"NAME   TYPE     DATA   AGE",
			"s      Opaque   1      12d",
		}},
		{"claims", "pvc", Options{}, []any{&corev1.PersistentVolumeClaim{ObjectMeta: meta("data", 192*time.Second),
			Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "v", StorageClassName: &class},
			Status: corev1.PersistentVolumeClaimStatus{AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce", "ReadOnlyMany"}, Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}, []string{
			"NAME   STATUS   VOLUME   CAPACITY   ACCESS MODES   STORAGECLASS   VOLUMEATTRIBUTESCLASS   AGE",
			"data   Bound    v        1Gi        RWO,ROX        standard       <unset>                 3m12s",
		}},
		{"runtimeclasses have no namespace", "runtimeclasses", Options{Namespace: true}, []any{&nodev1.RuntimeClass{ObjectMeta: meta("wasm", time.Minute), Handler: "w"}}, []string{
			"NAME   HANDLER   AGE",
			"wasm   w         60s",
		}},
		{"manifests", "manifests", Options{Namespace: true, Labels: true}, []any{
			&api.Manifest{File: "/etc/m/web.yaml", Status: "Loaded", Objects: 3, Since: ago(31 * time.Second).Time},
			&api.Manifest{File: "/etc/m/a.yaml", Status: "Loaded", Objects: 1, Since: ago(31 * time.Second).Time, Notes: []string{"document 1: one"}},
			&api.Manifest{File: "/etc/m/b.yaml", Status: "Loaded", Objects: 1, Since: ago(31 * time.Second).Time, Notes: []string{"document 1: one", "two", "three"}},
			&api.Manifest{File: "/etc/m/old.yaml", Status: "Refused", Notes: []string{"of the last good version"}, Since: ago(12 * time.Second).Time, Message: "document 2: unknown field"},
		}, []string{
			"FILE       STATUS    OBJECTS   SINCE   MESSAGE",
			"web.yaml   Loaded    3         31s     ",
			"a.yaml     Loaded    1         31s     ignored: document 1: one",
			"b.yaml     Loaded    1         31s     ignored: document 1: one (and 2 more)",
			"old.yaml   Refused   0         12s     document 2: unknown field",
		}},
		{"events of get", "events", Options{}, []any{event}, []string{
			"LAST SEEN   TYPE      REASON    OBJECT    MESSAGE",
			"5s          Warning   BackOff   pod/web   Back-off...",
		}},
		{"events", "events", Options{LongTimes: true}, []any{event}, []string{
			"LAST SEEN          TYPE      REASON    OBJECT    MESSAGE",
			"5s (x12 over 4m)   Warning   BackOff   Pod/web   Back-off...",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := api.FindResource(tt.kind)
			if !ok {
				t.Fatal("no such kind")
			}
			var rows [][]string
			for _, o := range tt.objects {
				raw, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				row, err := Row(r, raw, clock(), tt.o)
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, row)
			}
			var b bytes.Buffer
			if err := NewPrinter(&b, Header(r, tt.o)).Print(rows); err != nil {
				t.Fatal(err)
			}
			want := strings.Join(tt.want, "\n") + "\n"
			if b.String() != want {
				t.Errorf("got\n%swant\n%s", b.String(), want)
			}
		})
	}
}

// Rows that come later stand below the first, and the header is printed once.
func TestPrinterRemembersWidths(t *testing.T) {
	var b bytes.Buffer
	p := NewPrinter(&b, []string{"NAME", "STATUS"})
	for _, rows := range [][][]string{nil, {{"a-long-name", "Pending"}}, {{"é", "Running"}}} {
		if err := p.Print(rows); err != nil {
			t.Fatal(err)
		}
	}
	if want := "NAME          STATUS\na-long-name   Pending\né             Running\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{"a": "a", "\x1b[31mred": "^[[31mred", "a\tb\nc": "a\tb\nc", "x\x00\x7f": "x^@\\x7f", "\u009b2J": "\\x9b2J", "ü–": "ü–"} {
		if got := Plain(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Cell("one\x07\rtwo"); got != "one^G..." {
		t.Errorf("cell %q", got)
	}
}

func TestWhatIsNoObject(t *testing.T) {
	r, _ := api.FindResource("pods")
	if _, err := Row(r, json.RawMessage(`{"metadata": 1}`), clock(), Options{}); err == nil {
		t.Error("a wrong object is printed")
	}
	if _, err := Row(api.Resource{Kind: "Service"}, json.RawMessage(`{}`), clock(), Options{}); err == nil {
		t.Error("a kind without columns is printed")
	}
}
