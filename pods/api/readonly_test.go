package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

func listenReadOnly(t *testing.T, o Options) string {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := ListenReadOnly("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

func request(t *testing.T, method, url, host, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// B.9: what is served, and that nothing else is.
func TestReadOnlyPaths(t *testing.T) {
	f := newFake()
	base := "http://" + listenReadOnly(t, Options{Agent: f, Metrics: func(w io.Writer) error {
		_, err := io.WriteString(w, "prober_probe_total 7\n")
		return err
	}})
	for _, tt := range []struct {
		method, path, host, body string
		code                     int
		want                     string
	}{
		{method: "GET", path: "/healthz", code: 200, want: "ok"},
		{method: "GET", path: "/livez", code: 200, want: "ok"},
		{method: "HEAD", path: "/healthz", code: 200},
		{method: "GET", path: "/readyz", code: 503, want: "manifest /etc/m/old.yaml: Refused\npod default/feed: not Ready\npod default/web: not Ready\npod prod/web: not Ready\n"},
		{method: "GET", path: "/pods", code: 200, want: `{"kind":"PodList","apiVersion":"v1"`},
		{method: "GET", path: "/metrics", code: 200, want: "sunaba_pods_manifests_refused 1\n"},
		{method: "GET", path: "/metrics", code: 200, want: "prober_probe_total 7\n"},
		{method: "GET", path: "/metrics", code: 200, want: `sunaba_pods{phase="Running"} 2` + "\n"},
		{method: "GET", path: "/objects/secrets?values=true", code: 404},
		{method: "GET", path: "/describe/default/web", code: 404},
		{method: "GET", path: "/watch/pods", code: 404},
		{method: "GET", path: "/v1/server", code: 404},
		{method: "POST", path: "/debug", body: "{}", code: 405},
		{method: "GET", path: "/containerLogs/default/web/app", code: 404},
		{method: "POST", path: "/apply", body: "{}", code: 405},
		{method: "POST", path: "/delete", body: "{}", code: 405},
		{method: "POST", path: "/exec/default/web/app", code: 405},
		{method: "PUT", path: "/pods", code: 405},
		{method: "DELETE", path: "/pods", code: 405},
		{method: "OPTIONS", path: "/pods", code: 405},
		{method: "GET", path: "/pods", body: "x", code: 400},
		{method: "GET", path: "/pods", host: "evil.example:10255", code: 403},
		{method: "GET", path: "/pods", host: "localhost:10255", code: 200},
		{method: "GET", path: "/pods", host: "[::1]:10255", code: 200},
	} {
		code, body := request(t, tt.method, base+tt.path, tt.host, tt.body)
		if code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s (%s): %d %q, want %d %q", tt.method, tt.path, tt.host, code, body, tt.code, tt.want)
		}
		if strings.Contains(body, "hunter2") {
			t.Errorf("%s %s: a secret's value is in %q", tt.method, tt.path, body)
		}
	}
	f.health = errors.New("the CRI server does not answer")
	if code, body := request(t, "GET", base+"/livez", "", ""); code != 503 || body != "the CRI server does not answer\n" {
		t.Errorf("%d %q", code, body)
	}
}

func TestReady(t *testing.T) {
	f := newFake()
	f.files = f.files[:1]
	f.pods[0].Spec.RestartPolicy = corev1.RestartPolicyNever // a job need not be Ready
	for _, p := range f.pods[1:] {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	base := "http://" + listenReadOnly(t, Options{Agent: f})
	if code, body := request(t, "GET", base+"/readyz", "", ""); code != 200 || body != "ok" {
		t.Errorf("%d %q", code, body)
	}
	// CO7: its condition goes on following the probes.
	f.pods[1].DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if code, body := request(t, "GET", base+"/readyz", "", ""); code != 503 || body != "pod default/web: not Ready\n" {
		t.Errorf("with a pod that is being deleted: %d %q", code, body)
	}
}

func TestMetrics(t *testing.T) {
	f := newFake()
	f.pods = f.pods[1:2]
	f.pods[0].Name = "we\"b\n"
	f.pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "app", RestartCount: 4, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "side", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}
	base := "http://" + listenReadOnly(t, Options{Agent: f})
	_, body := request(t, "GET", base+"/metrics", "", "")
	for _, want := range []string{
		"kubelet_running_pods 1\n", `kubelet_running_containers{container_state="exited"} 1`, `kubelet_running_containers{container_state="running"} 1`,
		`sunaba_pods_container_restarts_total{namespace="default",pod="we\"b\n",container="app"} 4` + "\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in\n%s", want, body)
		}
	}
}

// Clients that send slowly, or too much, are cut off, and others are served.
func TestHostileClients(t *testing.T) {
	c, path := listen(t, newFake(), Options{header: 200 * time.Millisecond, request: 500 * time.Millisecond})
	for name, text := range map[string]string{
		"half a head":   "GET /objects/pods HTTP/1.1\r\nHost: x\r\n",
		"nothing":       "",
		"half a body":   "POST /apply HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"file\":",
		"not HTTP":      "\x00\x01\x02 hello\r\n\r\n",
		"a huge head":   "GET /objects/pods HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n",
		"endless chunk": "POST /delete HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n{\"Name\":\"",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := unixsocket.Dial(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// What is cut off while it is being sent answers with an error, which is right.
			io.WriteString(conn, text)
			conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			answer, err := io.ReadAll(conn)
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
				t.Fatalf("the server goes on waiting; it answered %q", answer)
			}
			if strings.HasPrefix(string(answer), "HTTP/1.1 200") {
				t.Errorf("it answered %q", answer)
			}
		})
	}
	if _, err := c.List(t.Context(), resource(t, "pods"), Query{}); err != nil {
		t.Error(err)
	}
}

// A watch outlives the time of other requests.
func TestWatchOutlivesRequestTime(t *testing.T) {
	f := newFake()
	_, path := listen(t, f, Options{header: 100 * time.Millisecond, request: 100 * time.Millisecond})
	conn, err := unixsocket.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /watch/pods HTTP/1.0\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	lines := bufio.NewScanner(conn)
	for lines.Scan() && !strings.Contains(lines.Text(), "BOOKMARK") {
	}
	// Twice the time of a request goes by on the server's own clock.
	time.Sleep(300 * time.Millisecond)
	f.set()
	deleted := 0
	for deleted < 3 && lines.Scan() {
		if strings.Contains(lines.Text(), `"DELETED"`) {
			deleted++
		}
	}
	if deleted != 3 {
		t.Errorf("%d pods were deleted, then %v", deleted, lines.Err())
	}
}

// More clients than there are places wait and do not take the server down.
func TestManyClients(t *testing.T) {
	c, path := listen(t, newFake(), Options{header: 300 * time.Millisecond})
	for range maxClients + 8 {
		conn, err := unixsocket.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := c.List(t.Context(), resource(t, "pods"), Query{}); err != nil {
		t.Errorf("after the silent ones were cut off: %v", err)
	}
}

// Who asks for pods before all that are on record are known waits, but not without end; who asks for
// the health of the process does not wait.
func TestRequestsAwaitAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := make(chan struct{})
		took := func(h http.Handler, path string) time.Duration {
			begun := time.Now()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return time.Since(begun)
		}
		answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		first, second := awaited(answers, Options{Whole: whole}), awaited(answers, Options{Whole: whole})
		for _, path := range []string{"/healthz", "/livez", "/metrics"} {
			if got := took(first, path); got != 0 {
				t.Errorf("%s was answered after %v", path, got)
			}
		}
		time.AfterFunc(3*time.Second, func() { close(whole) })
		if got := took(first, "/objects/pods"); got != 3*time.Second {
			t.Errorf("pods were listed after %v", got)
		}
		for _, path := range []string{"/readyz", "/pods", "/watch/pods"} {
			if got := took(second, path); got != 0 {
				t.Errorf("%s was answered %v after all were known", path, got)
			}
		}
		stuck := awaited(answers, Options{Whole: make(chan struct{})})
		if got := took(stuck, "/objects/pods"); got != wholeTime {
			t.Errorf("pods were listed after %v", got)
		}
		if got := took(stuck, "/objects/pods"); got != 0 {
			t.Errorf("pods were listed after %v more", got)
		}
	})
}
