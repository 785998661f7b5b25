package podcmd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/completion"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// agent is one that has what it is given and remembers what it is asked.
type agent struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	events  []*corev1.Event
	objects map[string][]metav1.Object
	files   []api.Manifest
	changed chan struct{}

	applied  []api.ApplyRequest
	deleted  []api.DeleteRequest
	restarts []api.RestartRequest
	debugs   []api.DebugRequest
	fails    error

	elsewhere string // a pod for another node
}

func (a *agent) Pods() []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.pods)
}
func (a *agent) Next(types.UID) api.Next { return api.Next{Text: "its readiness probe"} }
func (a *agent) Events() []*corev1.Event { return a.events }
func (a *agent) Objects(kind string) []metav1.Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[kind]
}
func (a *agent) Manifests() []api.Manifest { return a.files }
func (a *agent) Apply(_ context.Context, r api.ApplyRequest) (api.ApplyResult, error) {
	a.applied = append(a.applied, r)
	return api.ApplyResult{Applied: []api.Applied{
		{Key: manifest.Key{Kind: "Pod", Namespace: "default", Name: "web"}, Verb: api.Configured}, {Key: manifest.Key{Kind: "RuntimeClass", Name: "wasm"}, Verb: api.Created},
	}, Notes: []string{"spec.affinity has no effect"}}, a.fails
}
func (a *agent) Delete(_ context.Context, r api.DeleteRequest) error {
	a.mu.Lock()
	a.deleted = append(a.deleted, r)
	if r.Kind == manifest.KindPod && r.UID == "" && r.Name != a.elsewhere {
		a.mu.Unlock()
		return errdefs.ErrNotFound
	}
	if r.Kind == manifest.KindClaim && len(a.pods) > 0 {
		a.fails = errors.New("a pod uses it")
	} else if r.Kind == manifest.KindClaim {
		a.objects = nil
	}
	pods := slices.DeleteFunc(slices.Clone(a.pods), func(p *corev1.Pod) bool { return p.UID == r.UID || r.Manifests })
	a.mu.Unlock()
	if a.fails == nil {
		time.AfterFunc(10*time.Millisecond, func() { a.set(pods...) })
	}
	return a.fails
}
func (a *agent) Restart(_ context.Context, r api.RestartRequest) error {
	a.restarts = append(a.restarts, r)
	return a.fails
}
func (a *agent) Debug(_ context.Context, r api.DebugRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.debugs = append(a.debugs, r)
	return a.fails
}
func (a *agent) Watch() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}
func (a *agent) Health() error { return nil }

func (a *agent) set(pods ...*corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods = pods
	close(a.changed)
	a.changed = make(chan struct{})
}

func pod(name, uid string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), Labels: map[string]string{"app": name}, CreationTimestamp: metav1.NewTime(time.Now().Add(-5 * time.Hour))},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "side"}}, InitContainers: []corev1.Container{{Name: "init"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "app", Ready: true, ContainerID: "sunaba://c-app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, RestartCount: 1,
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "sunaba://c-old"}}},
				{Name: "side", Ready: true, ContainerID: "sunaba://c-side", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}},
	}
}

// node is an agent and a CRI server.
type node struct {
	runtime.UnimplementedRuntimeServiceServer
	agent  *agent
	dir    string
	server *api.Server

	mu         sync.Mutex
	containers map[string]*runtime.ContainerStatus
	infos      map[string]string // what a verbose status says, by container
	exec       []*runtime.ExecRequest
	attach     []*runtime.AttachRequest
	url        string
	measured   []api.ContainerUsage // nil for some of pods web and feed
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{dir: t.TempDir(), containers: map[string]*runtime.ContainerStatus{}, agent: &agent{
		changed: make(chan struct{}), pods: []*corev1.Pod{pod("feed", "u1", corev1.ConditionFalse), pod("web", "u2", corev1.ConditionTrue)},
		objects: map[string][]metav1.Object{manifest.KindSecret: {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"p": []byte("hunter2")}}}},
		events: []*corev1.Event{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "2"}, Type: "Warning", Reason: "BackOff", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", Namespace: "default"}, LastTimestamp: metav1.NewTime(time.Now().Add(-4 * time.Hour)), FirstTimestamp: metav1.NewTime(time.Now().Add(-4 * time.Hour))},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "1"}, Type: "Normal", Reason: "Started", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "feed", Namespace: "default"}, LastTimestamp: metav1.NewTime(time.Now().Add(-5 * time.Hour)), FirstTimestamp: metav1.NewTime(time.Now().Add(-5 * time.Hour))},
		},
	}}
	n.listen(t)
	l, err := net.Listen("unix", filepath.Join(n.dir, "cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	cri := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(cri, n)
	go cri.Serve(l)
	t.Cleanup(func() {
		cri.Stop()
		n.close(t)
	})
	return n
}

func (n *node) listen(t *testing.T) {
	t.Helper()
	s, err := api.Listen(filepath.Join(n.dir, api.SocketName), api.Options{Agent: n.agent, Usage: n.usage, Server: api.ServerInfo{CRISocket: filepath.Join(n.dir, "cri.sock"), StreamCertificate: filepath.Join(n.dir, "tls.crt")}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n.server = s
}

func (n *node) close(t *testing.T) {
	t.Helper()
	if err := n.server.Close(); err != nil {
		t.Error(err)
	}
}

func (n *node) usage(context.Context) ([]api.ContainerUsage, error) {
	if n.measured != nil {
		return n.measured, nil
	}
	return []api.ContainerUsage{
		{Pod: "u2", Container: "side", NanoCores: 1_500_001, MemoryBytes: 5 << 20}, {Pod: "u2", Container: "app", NanoCores: 250_000_000, MemoryBytes: 3<<20 - 1},
		{Pod: "u1", Container: "app", NanoCores: 1, MemoryBytes: 100 << 20}, {Pod: "gone", Container: "app", NanoCores: 7, MemoryBytes: 7},
	}, nil
}

func (n *node) Status(context.Context, *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	return &runtime.StatusResponse{}, nil
}

func (n *node) ContainerStatus(_ context.Context, r *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.containers[r.GetContainerId()]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "no container %q", r.GetContainerId())
	}
	resp := &runtime.ContainerStatusResponse{Status: s}
	if r.GetVerbose() {
		resp.Info = map[string]string{"info": n.infos[s.Id]}
	}
	return resp, nil
}

func (n *node) Exec(_ context.Context, r *runtime.ExecRequest) (*runtime.ExecResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.exec = append(n.exec, r)
	return &runtime.ExecResponse{Url: n.url}, nil
}

// container sets a container's state.
func (n *node) container(id, log string, state runtime.ContainerState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers[id] = &runtime.ContainerStatus{Id: id, LogPath: log, State: state}
}

// run runs a command line.
func (n *node) run(ctx context.Context, stdin string, args ...string) (out, errOut string, err error) {
	var b, e buffer
	err = n.runTo(ctx, &b, &e, stdin, args...)
	return b.String(), e.String(), err
}

// runTo is run, whose output may be read meanwhile.
func (n *node) runTo(ctx context.Context, out, errOut *buffer, stdin string, args ...string) error {
	root := &cli.Command{
		Name: "sunaba", Writer: out, ErrWriter: errOut, Reader: strings.NewReader(stdin), ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Commands: slices.Concat(completion.Commands(Places{State: n.dir, Socket: "/none"}.Complete), Commands(Places{State: n.dir, Socket: "/none"}), []*cli.Command{{Name: "top", Commands: []*cli.Command{Places{State: n.dir}.TopPods()}}}),
	}
	return root.Run(ctx, append([]string{"sunaba"}, args...))
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// B.5: words, flags and answers of kubectl.
func TestCommands(t *testing.T) {
	for _, tt := range []struct {
		line  string
		stdin string
		out   string // exact, unless it ends with "..."
		errs  string // what standard error starts with
		fails string
	}{
		{line: "get pods --no-headers -o name", out: "pod/feed\npod/web\n"},
		{line: "get -o name -l app=web", out: "pod/web\n"},
		{line: "get po web -o name", out: "pod/web\n"},
		{line: "get pod/web secret/s -o name", out: "pod/web\nsecret/s\n"},
		{line: "get po,secrets -o name", out: "pod/feed\npod/web\nsecret/s\n"},
		{line: "get secrets", out: "NAME   TYPE   DATA   AGE\ns             1      <unknown>\n"},
		{line: "get secret s -o yaml", out: "apiVersion: v1\ndata:\n  p: aHVudGVyMg==\nkind: Secret\nmetadata:\n  name: s\n  namespace: default\n"},
		{line: "get cm", errs: "No resources found in default namespace.\n"},
		{line: "get cm -A", errs: "No resources found\n"},
		{line: "get cm -o json", out: "{\n    \"apiVersion\": \"v1\",\n    \"items\": [],\n    \"kind\": \"List\",..."},
		{line: "get pods -n other", errs: "No resources found in other namespace.\n"},
		{line: "get pod x", fails: `pods "x" not found`},
		{line: "get pod web x -o name", out: "pod/web\n", fails: `pods "x" not found`},
		{line: "get -o jsonpath={.items[*].metadata.name}", out: "feed web"},
		{line: "get pod/web -o jsonpath={.metadata.name}", out: "web"},
		{line: "get secret s -o jsonpath={.data.p}", out: "aHVudGVyMg=="},
		{line: "get -o jsonpath", fails: "template format specified but no template given"},
		{line: "get -o jsonpath={.a", fails: "get: error parsing jsonpath {.a, unclosed action"},
		{line: "get -o jsonpath-file=/none", fails: "get: reading template /none"},
		{line: "get -o yaml=x", fails: `unable to match a printer suitable for the output format "yaml=x"`},
		{line: "get pods,secret -o custom-columns=NAME:.metadata.name,UID:{.metadata.uid}", out: "NAME   UID\nfeed   u1\nweb    u2\ns      <none>\n"},
		{line: "get -o custom-columns=NAME:.metadata.name --no-headers", out: "feed\nweb\n"},
		{line: "get -o custom-columns=NAME", fails: "unexpected custom-columns spec: NAME, expected <header>:<json-path-expr>"},
		{line: "get -o name --sort-by=.metadata.uid", out: "pod/feed\npod/web\n"},
		{line: "get -o name --sort-by={.status.conditions[0].status}", out: "pod/feed\npod/web\n"},
		{line: "get events --no-headers --sort-by=.lastTimestamp", out: "5h    Normal    Started   pod/feed   \n4h    Warning   BackOff   pod/web    \n"},
		{line: "get -o custom-columns-file=testdata/columns.txt --no-headers -l app=web", out: "web   Running\n"},
		{line: "get -o custom-columns-file=testdata/template.txt", fails: "number of headers (2) and field specifications (0) don't match"},
		{line: "get -o go-template={{.x}}", fails: "use -o jsonpath=TEMPLATE"},
		{line: "get pod/x --ignore-not-found"},
		{line: "get --namespac=other", fails: "unknown flag: --namespac (did you mean --namespace?)"},
		{line: "delete pod/web -o yaml", fails: "We only support '-o name'"},
		{line: "get --sort-by=.x", fails: `get: --sort-by: couldn't find any field with path ".x"`},
		{line: "get --sort-by={x", fails: "get: unexpected path string"},
		{line: "get services", fails: `the server doesn't have a resource type "services"`},
		{line: "get -o xml", fails: `unable to match a printer suitable for the output format "xml"`},
		{line: "get pods --field-selector a=b", fails: "field label not supported: a"},
		{line: "get pod/web -A", fails: "cannot be retrieved by name across all namespaces"},
		{line: "describe secret s", out: "Name:         s\nNamespace:    default\nLabels:       <none>\nAnnotations:  <none>\n\nType:  \n\nData\n====\np:  7 bytes\n"},
		{line: "describe pod web", out: "Name:..."},
		{line: "describe", fails: "want a kind"},
		{line: "top pods", out: "NAME   CPU(cores)   MEMORY(bytes)\nfeed   1m           100Mi\nweb    252m         7Mi\n"},
		{line: "top pod web --containers", out: "POD   NAME   CPU(cores)   MEMORY(bytes)\nweb   app    250m         2Mi\nweb   side   2m           5Mi\n"},
		{line: "top po -A --sort-by=cpu --no-headers", out: "default   web    252m   7Mi\ndefault   feed   1m     100Mi\n"},
		{line: "top pods --sort-by=memory --no-headers -l app", out: "feed   1m     100Mi\nweb    252m   7Mi\n"},
		{line: "top pods --sort-by=disk", fails: "--sort-by accepts only cpu or memory"},
		{line: "top pod x", fails: `pods "x" not found`},
		{line: "top pods -n other", errs: "No resources found in other namespace.\n"},
		{line: "__complete get po", out: "pods\tpo\n"},
		{line: "__complete get pods w", out: "web\t\n"},
		{line: "__complete delete secret/", out: "secret/s\t\n"},
		{line: "__complete logs f", out: "feed\t\n"},
		{line: "__complete logs web -c s", out: "side\t\n"},
		{line: "__complete exec pod/web --container=i", out: "--container=init\t\n"},
		{line: "__complete cp w", out: "web:\t\n"},
		{line: "__complete exec web -- w"},
		{line: "__complete get -n d", out: "default\t\n"},
		{line: "__complete logs -n other w"},
		{line: "__complete logs --state /none w"},
		{line: "__complete get -o custom", out: "custom-columns=\t\n"},
		{line: "__complete wait --for=c", out: "--for=condition=Ready\t\n--for=create\t\n"},
		{line: "__complete events --for pod/f", out: "pod/feed\t\n"},
		{line: "events", out: "LAST SEEN   TYPE      REASON    OBJECT     MESSAGE\n5h          Normal    Started   Pod/feed   \n4h          Warning   BackOff   Pod/web    \n"},
		{line: "events --for pod/web --no-headers", out: "4h    Warning   BackOff   Pod/web   \n"},
		{line: "events --types=normal --no-headers", out: "5h    Normal   Started   Pod/feed   \n"},
		{line: "events --types=normal,warning -o name", out: "event/1\nevent/2\n"},
		{line: "events --types=bad", fails: "valid --types are Normal or Warning"},
		{line: "events --for pod/x", errs: "No events found in default namespace.\n"},
		{line: "events --for pods", fails: "--for must be in resource/name form"},
		{line: "apply -f -", stdin: "kind: Pod", out: "pod/web configured\nruntimeclass.node.k8s.io/wasm created\n", errs: "Warning: spec.affinity has no effect\n"},
		{line: "apply -f - --dry-run=server", stdin: "kind: Pod", out: "pod/web configured (server dry run)\nruntimeclass.node.k8s.io/wasm created (server dry run)\n"},
		{line: "apply -f - --dry-run=maybe", fails: "--dry-run=maybe: must be"},
		{line: "apply x", fails: "want manifests as -f FILE"},
		{line: "apply -f /none", fails: "read manifest"},
		{line: "restart web pod/feed -c app", out: "pod/web restarted\npod/feed restarted\n"},
		{line: "restart cm/x", fails: "is not POD or pod/POD"},
		{line: "wait pod/web --for=condition=Ready", out: "pod/web condition met\n"},
		{line: "wait pod/feed --for=condition=ready=false", out: "pod/feed condition met\n"},
		{line: "wait pod/web --for=jsonpath={.status.phase}=Running", out: "pod/web condition met\n"},
		{line: `wait pod/web --for=jsonpath={.status.conditions[?(@.type=="Ready")].status}='True'`, out: "pod/web condition met\n"},
		{line: "wait pod/web --for=jsonpath=.metadata.uid", out: "pod/web condition met\n"},
		{line: "wait pod/web --for=jsonpath={.status.phase}=Failed --timeout=0", fails: "condition not met for pods/web"},
		{line: "wait pod/web --for=jsonpath={.status.none} --timeout=0", fails: "condition not met for pods/web"},
		{line: "wait pod/web --for=jsonpath={.status.phase}=", fails: "has to have a value after equal sign"},
		{line: "wait pod/web --for=jsonpath={.status.phase}Running", fails: "want =VALUE after {FIELD}"},
		{line: "wait pod/web --for=jsonpath={.a", fails: "wait: unexpected path string"},
		{line: "wait pods --all --for=create", out: "pod/feed condition met\npod/web condition met\n"},
		{line: "wait pod/feed --for=condition=Ready --timeout=0", fails: "condition not met for pods/feed"},
		{line: "wait pod/feed --for=condition=Ready --timeout=100ms", fails: "timed out waiting for the condition on pods/feed"},
		{line: "wait pod/x --for=condition=Ready --timeout=0", fails: `pods "x" not found`},
		{line: "wait pod/x --for=delete"},
		{line: "wait pods -l app=none --for=condition=Ready", fails: "no matching resources found"},
		{line: "wait pod/web", fails: "--for is missing"},
		{line: "delete pods", fails: "no name was specified"},
		{line: "delete pod web --now --grace-period=3", fails: "cannot be specified together"},
		{line: "delete pod web --force --grace-period=3", fails: "cannot be specified together"},
		{line: "delete pod x", fails: `pods "x" not found`},
		{line: "delete pod x --ignore-not-found"},
		{line: "delete -f - pod/web", fails: "-f excludes names"},
		{line: "logs x", fails: `pods "x" not found`},
		{line: "logs web -c none", fails: "container none is not valid for pod web out of: init, app, side"},
		{line: "logs web -c init", fails: `container "init" in pod "web" is waiting to start: trying and failing to pull image`},
		{line: "logs web side -p", fails: `previous terminated container "side" in pod "web" not found`},
		{line: "logs web app -p", fails: `previous terminated container "app" in pod "web" not found`}, // collected
		{line: "logs web --since=1s --since-time=2026-01-02T03:04:05Z", fails: "logs: at most one of `sinceTime` or `sinceSeconds` may be specified"},
		{line: "logs web --tail=-2", fails: "logs: --tail must be greater than or equal to -1"},
		{line: "logs web --limit-bytes=-1", fails: "--limit-bytes must be greater than 0"},
		{line: "logs web --since=-1s", fails: "--since must be greater than 0"},
		{line: "logs web --pod-running-timeout=0", fails: "--pod-running-timeout must be higher than zero"},
		{line: "logs web app -c app", fails: "only one of -c or an inline [CONTAINER] arg is allowed"},
		{line: "logs web -c app --all-containers", fails: "--all-containers=true should not be specified with container name app"},
		{line: "logs", fails: "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command"},
		{line: "logs web -l app=web", fails: "only a selector (-l) or a POD name is allowed"},
		{line: "logs -l app=none", errs: "No resources found in default namespace.\n"},
		{line: "logs -l app==", errs: "No resources found"},
		{line: "logs -l a+b", fails: `label selector "a+b"`},
		{line: "logs -l app -c none", fails: "container none is not valid for pod feed out of: init, app, side"},
		{line: "logs -f --all-containers -l app", fails: "you are attempting to follow 6 log streams, but maximum allowed concurrency is 5, use --max-log-requests to increase the limit"},
		{line: "logs -f --all-containers web --max-log-requests=2", fails: "you are attempting to follow 3 log streams, but maximum allowed concurrency is 2"},
		{line: "exec web", fails: "you must specify at least one command"},
		{line: "exec web -c init -- ls", fails: `container "init" in pod "web" does not run`},
		{line: "get pods --state /none", fails: "no server answers on"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			n := newNode(t)
			out, errOut, err := n.run(t.Context(), tt.stdin, strings.Fields(tt.line)...)
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
			if want, open := strings.CutSuffix(tt.out, "..."); out != want && (!open || !strings.HasPrefix(out, want)) {
				t.Errorf("printed %q, want %q", out, tt.out)
			}
			if !strings.HasPrefix(errOut, tt.errs) {
				t.Errorf("standard error has %q, want %q", errOut, tt.errs)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	one, zero := int64(1), int64(0)
	for _, tt := range []struct {
		line, stdin, out string
		names            string
		grace            *int64
	}{
		{line: "delete pod web", out: "pod \"web\" deleted from default namespace\n", names: "default/web/u2"},
		{line: "delete pod/web --now", out: "pod \"web\" deleted from default namespace\n", names: "default/web/u2", grace: &one},
		{line: "delete pod/web --grace-period=0", out: "pod \"web\" deleted from default namespace\n", names: "default/web/u2", grace: &one},
		{line: "delete pod/web --force", out: "pod \"web\" force deleted from default namespace\n", names: "default/web/u2", grace: &zero},
		{line: "delete pods -l app=feed --wait=false", out: "pod \"feed\" deleted from default namespace\n", names: "default/feed/u1"},
		{line: "delete -f -", stdin: "# a comment\n---\nkind: List\nitems:\n- kind: Pod\n  metadata: {name: web}\n  spec: {unknown: field}\n", out: "pod \"web\" deleted from default namespace\n", names: "default/web/u2"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			n := newNode(t)
			out, _, err := n.run(t.Context(), tt.stdin, strings.Fields(tt.line)...)
			if err != nil || out != tt.out {
				t.Fatalf("%v, %q, want %q", err, out, tt.out)
			}
			var names []string
			n.agent.mu.Lock()
			defer n.agent.mu.Unlock()
			for _, r := range n.agent.deleted {
				names = append(names, r.Namespace+"/"+r.Name+"/"+string(r.UID))
				if (r.GraceSeconds == nil) != (tt.grace == nil) || tt.grace != nil && *r.GraceSeconds != *tt.grace {
					t.Errorf("grace %v, want %v", r.GraceSeconds, tt.grace)
				}
			}
			if strings.Join(names, " ") != tt.names {
				t.Errorf("deleted %q, want %q", names, tt.names)
			}
			if !strings.Contains(tt.line, "wait=false") && len(n.agent.pods) != 1 {
				t.Error("it did not wait until the pod was gone")
			}
		})
	}
}

// B.10: delete --all --manifests ends the pods of all namespaces, and waits for that.
func TestDeleteManifests(t *testing.T) {
	n := newNode(t)
	for _, line := range []string{"delete --manifests", "delete pods --all --manifests", "delete --all --manifests -l a=b", "delete --all --manifests -n prod", "delete --all --manifests -f x"} {
		if _, _, err := n.run(t.Context(), "", strings.Fields(line)...); err == nil || len(n.agent.deleted) != 0 {
			t.Errorf("%s: %v, %v", line, err, n.agent.deleted)
		}
	}
	other := pod("other", "u9", corev1.ConditionTrue)
	other.Namespace = "prod"
	web := pod("web", "u2", corev1.ConditionTrue)
	web.Spec.RestartPolicy, other.Spec.RestartPolicy = corev1.RestartPolicyAlways, corev1.RestartPolicyNever
	n.agent.set(web, other)
	out, _, err := n.run(t.Context(), "", "delete", "--all", "--manifests", "--now")
	if want := "pod \"web\" deleted from default namespace\npod \"other\" deleted from prod namespace\n"; err != nil || out != want {
		t.Errorf("%v, %q", err, out)
	}
	r := n.agent.deleted
	if len(r) != 1 || !r[0].Manifests || r[0].Key != (manifest.Key{}) || *r[0].GraceSeconds != 1 || len(n.agent.Pods()) != 0 {
		t.Errorf("asked %+v, and %d pods are left", r, len(n.agent.Pods()))
	}
}

// What a file has is deleted as a whole: a claim after the pods that use it, wherever it stands.
func TestDeletePodsBeforeClaims(t *testing.T) {
	n := newNode(t)
	n.agent.set(pod("web", "u2", corev1.ConditionTrue))
	n.agent.objects[manifest.KindClaim] = []metav1.Object{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "u5"}}}
	out, _, err := n.run(t.Context(), "kind: PersistentVolumeClaim\nmetadata: {name: data}\n---\nkind: Pod\nmetadata: {name: web}\n", "delete", "-f", "-")
	if want := "pod \"web\" deleted from default namespace\npersistentvolumeclaim \"data\" deleted from default namespace\n"; err != nil || out != want {
		t.Errorf("%v, %q", err, out)
	}
}

// An applied Pod that names another node is not among the pods, and can be deleted by its name.
func TestDeletePodOfAnotherNode(t *testing.T) {
	for _, line := range []string{"delete pod/elsewhere", "delete -f -"} {
		n := newNode(t)
		n.agent.elsewhere = "elsewhere"
		out, _, err := n.run(t.Context(), "kind: Pod\nmetadata: {name: elsewhere}\n", strings.Fields(line)...)
		if want := "pod \"elsewhere\" deleted from default namespace\n"; err != nil || out != want {
			t.Errorf("%s: %v, %q", line, err, out)
		}
		if _, _, err := n.run(t.Context(), "", "delete", "pod/gone"); err == nil || err.Error() != `pods "gone" not found` {
			t.Errorf("a pod that is not there: %v", err)
		}
		if _, _, err := n.run(t.Context(), "", "delete", "pod/gone", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	}
}

func TestDeleteOfWhatStandsInAFile(t *testing.T) {
	n := newNode(t)
	n.agent.fails = errors.Join(errors.New("pod default/web stands in /etc/sunaba/manifests/web.yaml: edit or remove it there"), errdefs.ErrFailedPrecondition)
	out, _, err := n.run(t.Context(), "", "delete", "pod/web")
	if out != "" || err == nil || !strings.Contains(err.Error(), "stands in /etc/sunaba/manifests/web.yaml") {
		t.Errorf("%q, %v", out, err)
	}
}

// B.10: a pod that is not there yet is waited for.
func TestWaitForWhatIsNotThereYet(t *testing.T) {
	n := newNode(t)
	done := make(chan error, 1)
	var out string
	go func() {
		var err error
		out, _, err = n.run(t.Context(), "", "wait", "pod/new", "--for=condition=Ready", "--timeout=1m")
		done <- err
	}()
	for _, ready := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
		time.Sleep(20 * time.Millisecond)
		n.agent.set(pod("new", "u9", ready))
	}
	if err := <-done; err != nil || out != "pod/new condition met\n" {
		t.Errorf("%v, %q", err, out)
	}
}

// wait judges conditions as kubectl does: a pod that is being deleted counts by its condition (it
// is /readyz that leaves it out), and a condition from before the last edit does not count.
func TestWaitJudgesAsKubectl(t *testing.T) {
	n := newNode(t)
	deleted, edited := pod("deleted", "u1", corev1.ConditionTrue), pod("edited", "u2", corev1.ConditionTrue)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	edited.Generation, edited.Status.ObservedGeneration = 2, 1
	n.agent.set(deleted, edited)
	if out, _, err := n.run(t.Context(), "", "wait", "pod/deleted", "--for=condition=Ready", "--timeout=0"); err != nil || out != "pod/deleted condition met\n" {
		t.Errorf("%v, %q", err, out)
	}
	if out, _, err := n.run(t.Context(), "", "wait", "pod/edited", "--for=condition=Ready", "--timeout=0"); err == nil || out != "" {
		t.Errorf("%v, %q", err, out)
	}
	edited = pod("edited", "u2", corev1.ConditionTrue)
	edited.Generation, edited.Status.ObservedGeneration = 2, 2
	n.agent.set(deleted, edited)
	if out, _, err := n.run(t.Context(), "", "wait", "pod/edited", "--for=condition=Ready", "--timeout=0"); err != nil || out != "pod/edited condition met\n" {
		t.Errorf("%v, %q", err, out)
	}
}
