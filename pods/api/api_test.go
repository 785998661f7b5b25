package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// fake is an agent that has what it is given and remembers what it is asked.
type fake struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	events  []*corev1.Event
	objects map[string][]metav1.Object
	files   []Manifest
	changed chan struct{}
	health  error
	fails   error // of apply, delete and restart

	applied  []ApplyRequest
	deleted  []DeleteRequest
	restarts []RestartRequest
	debugs   []DebugRequest
}

func (f *fake) Pods() []*corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pods)
}
func (f *fake) Next(uid types.UID) Next {
	return Next{Text: "restart of " + string(uid), Until: time.Unix(2000, 0).UTC()}
}
func (f *fake) Events() []*corev1.Event { return f.events }
func (f *fake) Objects(kind string) []metav1.Object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[kind]
}
func (f *fake) Manifests() []Manifest { return f.files }
func (f *fake) Apply(_ context.Context, r ApplyRequest) (ApplyResult, error) {
	f.applied = append(f.applied, r)
	return ApplyResult{Applied: []Applied{{Key: manifest.Key{Kind: "Pod", Namespace: "default", Name: "web"}, Verb: Created}}, Notes: []string{"a note"}}, f.fails
}
func (f *fake) Delete(_ context.Context, r DeleteRequest) error {
	f.deleted = append(f.deleted, r)
	return f.fails
}
func (f *fake) Restart(_ context.Context, r RestartRequest) error {
	f.restarts = append(f.restarts, r)
	return f.fails
}
func (f *fake) Debug(_ context.Context, r DebugRequest) error {
	f.debugs = append(f.debugs, r)
	return f.fails
}
func (f *fake) Watch() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}
func (f *fake) Health() error { return f.health }

// set changes the pods and wakes who watches.
func (f *fake) set(pods ...*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = pods
	close(f.changed)
	f.changed = make(chan struct{})
}

func pod(namespace, name, uid string, phase corev1.PodPhase, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "till-4", RestartPolicy: corev1.RestartPolicyAlways},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func newFake() *fake {
	return &fake{
		changed: make(chan struct{}),
		pods: []*corev1.Pod{
			pod("default", "feed", "u1", corev1.PodPending, map[string]string{"app": "feed"}),
			pod("default", "web", "u2", corev1.PodRunning, map[string]string{"app": "web"}),
			pod("prod", "web", "u3", corev1.PodRunning, map[string]string{"app": "web", "tier": "x"}),
		},
		events: []*corev1.Event{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web.1"}, Type: "Normal", Reason: "Started",
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "u2"}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web.2"}, Type: "Warning", Reason: "BackOff",
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "older"}},
		},
		objects: map[string][]metav1.Object{
			manifest.KindSecret: {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Annotations: map[string]string{"copy": "hunter2"}},
				Data: map[string][]byte{"password": []byte("hunter2")}, StringData: map[string]string{"other": "hunter2"}}},
			manifest.KindRuntimeClass: {&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "wasm"}, Handler: "wasm"}},
		},
		files: []Manifest{{File: "/etc/m/web.yaml", Status: ManifestLoaded, Objects: 3}, {File: "/etc/m/old.yaml", Status: ManifestRefused, Message: "unknown field"}},
	}
}

// listen serves an agent on a socket and connects to it.
func listen(t *testing.T, f *fake, o Options) (*Client, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pods.sock")
	o.Agent, o.Logger = f, slog.New(slog.DiscardHandler)
	s, err := Listen(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket stays: %v", err)
		}
	})
	c, err := Connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, path
}

func resource(t *testing.T, name string) Resource {
	t.Helper()
	r, ok := FindResource(name)
	if !ok {
		t.Fatalf("no resource %q", name)
	}
	return r
}

// B.9: the socket is for its owner only.
func TestSocketMode(t *testing.T) {
	_, path := listen(t, newFake(), Options{})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// A stale socket is replaced.
	s, err := Listen(path, Options{Agent: newFake(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestConnectToNothing(t *testing.T) {
	if _, err := Connect(t.Context(), filepath.Join(t.TempDir(), "none")); !errdefs.IsUnavailable(err) {
		t.Errorf("error %v", err)
	}
}

func TestList(t *testing.T) {
	c, _ := listen(t, newFake(), Options{})
	for _, tt := range []struct {
		kind string
		q    Query
		want string // namespaces and names
		err  string
	}{
		{kind: "pods", want: "default/feed default/web prod/web"},
		{kind: "po", q: Query{Namespace: "default"}, want: "default/feed default/web"},
		{kind: "pod", q: Query{Name: "web"}, want: "default/web prod/web"},
		{kind: "pods", q: Query{LabelSelector: "app=web"}, want: "default/web prod/web"},
		{kind: "pods", q: Query{LabelSelector: "app in (web,feed),!tier"}, want: "default/feed default/web"},
		{kind: "pods", q: Query{FieldSelector: "status.phase=Running,metadata.namespace!=prod"}, want: "default/web"},
		{kind: "pods", q: Query{FieldSelector: "spec.nodeName=other"}},
		{kind: "pods", q: Query{FieldSelector: "metadata.name=web"}, want: "default/web prod/web"},
		{kind: "pods", q: Query{FieldSelector: "spec.foo=1"}, err: "field label not supported: spec.foo"},
		{kind: "pods", q: Query{LabelSelector: "a b"}, err: `label selector "a b"`},
		{kind: "pods", q: Query{LabelSelector: strings.Repeat("x", maxSelector+1)}, err: "longer than 4096 bytes"},
		{kind: "pods", q: Query{Namespace: strings.Repeat("x", maxName+1)}, err: "longer than 253 bytes"},
		{kind: "runtimeclasses", q: Query{Namespace: "prod"}, want: "/wasm"},
		{kind: "events", q: Query{FieldSelector: "involvedObject.uid=u2,type!=Warning"}, want: "default/web.1"},
		{kind: "configmaps"},
	} {
		t.Run(tt.kind+" "+tt.want+tt.err, func(t *testing.T) {
			r := resource(t, tt.kind)
			objects, err := Objects[metav1.PartialObjectMetadata](t.Context(), c, r, tt.q)
			if tt.err != "" {
				if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range objects {
				got = append(got, o.Namespace+"/"+o.Name)
				if o.Kind != r.Kind || o.APIVersion != r.APIVersion {
					t.Errorf("%s is a %s of %s", o.Name, o.Kind, o.APIVersion)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestListManifests(t *testing.T) {
	c, _ := listen(t, newFake(), Options{})
	got, err := Objects[Manifest](t.Context(), c, resource(t, "manifests"), Query{Name: "old.yaml"})
	if err != nil || len(got) != 1 || got[0].File != "/etc/m/old.yaml" || got[0].Status != "Refused" || got[0].Message != "unknown field" || got[0].Kind != "Manifest" {
		t.Errorf("%+v, %v", got, err)
	}
}

// B.6: values of Secrets are only in what asks for them.
func TestSecretsValues(t *testing.T) {
	f := newFake()
	c, _ := listen(t, f, Options{})
	for _, values := range []bool{false, true} {
		l, err := c.List(t.Context(), resource(t, "secrets"), Query{Values: values})
		if err != nil || len(l.Items) != 1 {
			t.Fatalf("%d items, %v", len(l.Items), err)
		}
		all, err := Decode[corev1.Secret](l)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(all[0].Data["password"]) == "hunter2"; got != values {
			t.Errorf("with values %v: %s", values, l.Items[0])
		}
		if _, ok := all[0].Data["password"]; !ok {
			t.Errorf("the key is missing: %s", l.Items[0])
		}
		for _, hidden := range []string{"hunter2", "aHVudGVyMg"} {
			if !values && strings.Contains(string(l.Items[0]), hidden) {
				t.Errorf("%s is in %s", hidden, l.Items[0])
			}
		}
	}
	if got := f.objects[manifest.KindSecret][0].(*corev1.Secret); string(got.Data["password"]) != "hunter2" || got.Kind != "" {
		t.Errorf("the agent's own object was changed: %v", got)
	}
}

func TestDescribe(t *testing.T) {
	c, _ := listen(t, newFake(), Options{})
	d, err := c.Describe(t.Context(), "default", "web")
	if err != nil || d.Pod.UID != "u2" || d.Next.Text != "restart of u2" || !d.Next.Until.Equal(time.Unix(2000, 0)) {
		t.Fatalf("%+v, %v", d, err)
	}
	// Events of an older pod of the name are not its own.
	if len(d.Events) != 1 || d.Events[0].Reason != "Started" {
		t.Errorf("events %v", d.Events)
	}
	if _, err := c.Describe(t.Context(), "default", "x"); !errdefs.IsNotFound(err) || err.Error() != `pods "x" not found` {
		t.Errorf("error %v", err)
	}
}

func TestChanges(t *testing.T) {
	f := newFake()
	c, _ := listen(t, f, Options{})
	result, err := c.Apply(t.Context(), ApplyRequest{File: "a.yaml", Data: []byte("kind: Pod\n"), Namespace: "prod", DryRun: true})
	if err != nil || len(result.Applied) != 1 || result.Applied[0].String() != "pod default/web" || result.Applied[0].Verb != "created" || result.Notes[0] != "a note" {
		t.Errorf("%+v, %v", result, err)
	}
	if len(f.applied) != 1 || string(f.applied[0].Data) != "kind: Pod\n" || f.applied[0].Namespace != "prod" || !f.applied[0].DryRun {
		t.Errorf("asked %+v", f.applied)
	}
	grace := int64(0)
	key := manifest.Key{Kind: "Pod", Namespace: "default", Name: "web"}
	if err := c.Delete(t.Context(), DeleteRequest{Key: key, UID: "u2", GraceSeconds: &grace}); err != nil {
		t.Error(err)
	}
	if len(f.deleted) != 1 || f.deleted[0].Key != key || f.deleted[0].UID != "u2" || f.deleted[0].GraceSeconds == nil || *f.deleted[0].GraceSeconds != 0 {
		t.Errorf("asked %+v", f.deleted)
	}
	if err := c.Restart(t.Context(), RestartRequest{Namespace: "default", Name: "web", Container: "app"}); err != nil {
		t.Error(err)
	}
	if len(f.restarts) != 1 || f.restarts[0] != (RestartRequest{"default", "web", "app"}) {
		t.Errorf("asked %+v", f.restarts)
	}
}

func TestDebug(t *testing.T) {
	f := newFake()
	c, _ := listen(t, f, Options{})
	container := corev1.EphemeralContainer{TargetContainerName: "app", EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "d", Image: "busybox", Command: []string{"sh"}, Stdin: true,
		SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}},
	}}
	want := DebugRequest{Namespace: "default", Name: "web", Container: container}
	if err := c.Debug(t.Context(), want); err != nil {
		t.Error(err)
	}
	if len(f.debugs) != 1 || !reflect.DeepEqual(f.debugs[0], want) {
		t.Errorf("asked %+v", f.debugs)
	}
	f.fails = fmt.Errorf("add container: %w", errdefs.ErrAlreadyExists)
	if err := c.Debug(t.Context(), want); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a name that is in use: %v", err)
	}
}

func TestServer(t *testing.T) {
	for _, socket := range []string{"/run/other/sunaba.sock", ""} {
		c, _ := listen(t, newFake(), Options{Server: ServerInfo{CRISocket: socket}})
		if info, err := c.Server(t.Context()); err != nil || info.CRISocket != socket {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

func TestChangesThatAreRefused(t *testing.T) {
	f := newFake()
	c, _ := listen(t, f, Options{})
	key := manifest.Key{Kind: "Pod", Namespace: "default", Name: "web"}
	for _, grace := range []int64{-1, maxGrace} {
		if err := c.Delete(t.Context(), DeleteRequest{Key: key, GraceSeconds: &grace}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("grace %d: %v", grace, err)
		}
	}
	if err := c.Delete(t.Context(), DeleteRequest{Key: key, Manifests: true}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("all pods and one of them: %v", err)
	}
	for _, kind := range []string{"", "Event", "Manifest", "Node"} {
		if err := c.Delete(t.Context(), DeleteRequest{Key: manifest.Key{Kind: kind, Name: "x"}}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("kind %q: %v", kind, err)
		}
	}
	if _, err := c.Apply(t.Context(), ApplyRequest{Data: make([]byte, maxManifest+1)}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("too long: %v", err)
	}
	if _, err := c.Apply(t.Context(), ApplyRequest{Data: make([]byte, maxManifest+1<<20)}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("much too long: %v", err)
	}
	if len(f.applied)+len(f.deleted) > 0 {
		t.Errorf("the agent was asked: %v %v", f.applied, f.deleted)
	}
	for _, class := range []error{errdefs.ErrFailedPrecondition, errdefs.ErrNotFound, errdefs.ErrInvalidArgument, errdefs.ErrUnavailable} {
		f.fails = errors.Join(errors.New("pod default/web: stands in /etc/m/web.yaml: edit or remove it there"), class)
		err := c.Delete(t.Context(), DeleteRequest{Key: key})
		if !errors.Is(err, class) || !strings.HasPrefix(err.Error(), "pod default/web: stands in /etc/m/web.yaml") {
			t.Errorf("%v: %v", class, err)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	c, _ := listen(t, newFake(), Options{})
	for _, tt := range []struct {
		method, path string
		body         any
		code         int
	}{
		{http.MethodGet, "apply", nil, http.StatusMethodNotAllowed},
		{http.MethodPost, "objects/pods", struct{}{}, http.StatusMethodNotAllowed},
		{http.MethodGet, "objects/services", nil, http.StatusBadRequest},
		{http.MethodGet, "watch/services", nil, http.StatusBadRequest},
		{http.MethodGet, "exec", nil, http.StatusNotFound},
		{http.MethodPost, "delete", map[string]string{"unknown": "x"}, http.StatusBadRequest},
		{http.MethodPost, "debug", map[string]string{"image": "x"}, http.StatusBadRequest},
		{http.MethodPost, "restart", []int{1}, http.StatusBadRequest},
		{http.MethodPost, "delete", map[string]string{"Name": strings.Repeat("x", maxRequest)}, http.StatusBadRequest},
	} {
		resp, err := c.send(t.Context(), tt.method, tt.path, tt.body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.code {
			t.Errorf("%s %s: %s, want %d", tt.method, tt.path, resp.Status, tt.code)
		}
	}
}
