package podcmd

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"

	corev1 "k8s.io/api/core/v1"
)

func (n *node) log(t *testing.T, id string, state runtime.ContainerState, lines ...string) string {
	t.Helper()
	path := filepath.Join(n.dir, id+".log")
	for i, line := range lines {
		appendLine(t, path, fmt.Sprintf("2026-01-02T03:04:%02d.000000000Z stdout F %s\n", i, line))
	}
	n.container(id, path, state)
	return path
}

func appendLine(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestLogs(t *testing.T) {
	n := newNode(t)
	web := pod("web", "u2", corev1.ConditionTrue)
	web.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "sunaba://c-init"}}
	n.agent.set(web)
	n.log(t, "c-app", runtime.ContainerState_CONTAINER_RUNNING, "one", "two", "three")
	n.log(t, "c-side", runtime.ContainerState_CONTAINER_RUNNING, "side")
	n.log(t, "c-init", runtime.ContainerState_CONTAINER_EXITED, "init")
	n.log(t, "c-old", runtime.ContainerState_CONTAINER_EXITED, "old")
	for line, want := range map[string]string{
		"logs web":                                   "one\ntwo\nthree\n",
		"logs pod/web side":                          "side\n",
		"logs web -c app --tail=1":                   "three\n",
		"logs web -p":                                "old\n", // LG3
		"logs web --all-containers --prefix":         "[pod/web/init] init\n[pod/web/app] one\n[pod/web/app] two\n[pod/web/app] three\n[pod/web/side] side\n",
		"logs web --timestamps --tail 1":             "2026-01-02T03:04:02.000000000Z three\n",
		"logs web --limit-bytes=5":                   "one\nt",
		"logs web --since-time=2026-01-02T03:04:01Z": "two\nthree\n",
		"logs web --since=1s":                        "",
	} {
		out, errOut, err := n.run(t.Context(), "", strings.Fields(line)...)
		if err != nil || out != want {
			t.Errorf("%s: %v, %q, want %q", line, err, out, want)
		}
		if line == "logs web" && errOut != "Defaulted container \"app\" out of: app, side, init (init)\n" {
			t.Errorf("standard error has %q", errOut)
		}
	}
}

func TestLogsFollow(t *testing.T) {
	n := newNode(t)
	path := n.log(t, "c-app", runtime.ContainerState_CONTAINER_RUNNING, "one")
	side := n.log(t, "c-side", runtime.ContainerState_CONTAINER_RUNNING, "s")
	init := n.log(t, "c-init", runtime.ContainerState_CONTAINER_EXITED)
	appendLine(t, init, "")
	web := pod("web", "u2", corev1.ConditionTrue)
	web.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "sunaba://c-init"}}
	n.agent.set(web)
	done := make(chan error, 1)
	var b, e buffer
	go func() { done <- n.runTo(t.Context(), &b, &e, "", "logs", "-f", "web", "--all-containers", "--prefix") }()
	for end := time.Now().Add(time.Minute); !strings.Contains(b.String(), "one\n"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first line does not come")
		}
	}
	appendLine(t, path, "2026-01-02T03:05:00Z stdout F two\n")
	if err := os.Rename(path, path+".20260102-030500"); err != nil {
		t.Fatal(err)
	}
	appendLine(t, path, "2026-01-02T03:05:01Z stderr F three\n")
	n.container("c-app", path, runtime.ContainerState_CONTAINER_EXITED)
	n.container("c-side", side, runtime.ContainerState_CONTAINER_EXITED)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	out := b.String()
	var app []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "[pod/web/app] ") {
			app = append(app, line)
		}
	}
	if got, want := strings.Join(app, ""), "[pod/web/app] one\n[pod/web/app] two\n[pod/web/app] three\n"; got != want || !strings.Contains(out, "[pod/web/side] s\n") {
		t.Errorf("printed %q", out)
	}
}

// Logs of many pods: each in its turn, the last ten lines of each, with kubectl's texts.
func TestLogsOfSelector(t *testing.T) {
	n := newNode(t)
	feed, web := pod("feed", "u1", corev1.ConditionTrue), pod("web", "u2", corev1.ConditionTrue)
	feed.Status.ContainerStatuses[0].ContainerID = "sunaba://f-app"
	web.Annotations = map[string]string{"kubectl.kubernetes.io/default-container": "side"}
	n.agent.set(feed, web)
	var lines []string
	for i := range 12 {
		lines = append(lines, fmt.Sprint(i))
	}
	n.log(t, "f-app", runtime.ContainerState_CONTAINER_RUNNING, lines...)
	n.log(t, "c-side", runtime.ContainerState_CONTAINER_RUNNING, "side")
	n.log(t, "c-app", runtime.ContainerState_CONTAINER_RUNNING, "app")
	for _, tt := range []struct{ line, out, errs, fails string }{
		{line: "logs -l app", out: "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\nside\n", errs: "Defaulted container \"app\" out of: app, side, init (init)\n"},
		{line: "logs -l app --tail=-1 --limit-bytes=4", out: "0\n1\nside", errs: "Defaulted"},
		{line: "logs -l app --tail=1 --all-pods", out: "[pod/feed/app] 11\n[pod/web/side] side\n"},
		{line: "logs web --all-pods", out: "[pod/web/side] side\n"},
		{line: "logs -l app=web -c app --prefix", out: "[pod/web/app] app\n"},
		{line: "logs -l app=web --all-containers --prefix", fails: "is waiting to start: trying and failing to pull image"},
		{line: "logs -l app=web --all-containers --prefix --ignore-errors", out: "error: container \"init\" in pod \"web\" is waiting to start: trying and failing to pull image\n[pod/web/app] app\n[pod/web/side] side\n"},
	} {
		out, errOut, err := n.run(t.Context(), "", strings.Fields(tt.line)...)
		if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%s: %v, want %q", tt.line, err, tt.fails)
		}
		if out != tt.out || !strings.HasPrefix(errOut, tt.errs) || tt.errs == "" && errOut != "" {
			t.Errorf("%s: %q and %q, want %q and %q", tt.line, out, errOut, tt.out, tt.errs)
		}
	}
}

// A log that is followed is waited for; the first error ends those of others too, unless errors are
// ignored.
func TestLogsFollowWaits(t *testing.T) {
	const waits = `container "init" in pod "web" is waiting to start: trying and failing to pull image`
	n := newNode(t)
	n.agent.set(pod("web", "u2", corev1.ConditionTrue))
	n.log(t, "c-init", runtime.ContainerState_CONTAINER_EXITED, "i")
	path := n.log(t, "c-side", runtime.ContainerState_CONTAINER_RUNNING, "s")
	n.log(t, "c-app", runtime.ContainerState_CONTAINER_RUNNING, "a")
	var out, errs buffer
	done := make(chan error, 1)
	go func() { done <- n.runTo(t.Context(), &out, &errs, "", "logs", "-f", "web", "init") }()
	for end := time.Now().Add(time.Minute); !strings.Contains(errs.String(), waits+"\n"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not waited for: %q", errs.String())
		}
	}
	web := pod("web", "u2", corev1.ConditionTrue)
	web.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "sunaba://c-init"}}
	n.agent.set(web)
	if err := <-done; err != nil || out.String() != "i\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	n.agent.set(pod("web", "u2", corev1.ConditionTrue))
	o, e, err := n.run(t.Context(), "", "logs", "-f", "web", "--all-containers", "--pod-running-timeout=1500ms")
	if err == nil || err.Error() != "logs: gave up after 1.5s: "+waits || strings.Count(e, waits+"\n") != 2 || !strings.Contains(o, "s\n") || !strings.Contains(o, "a\n") {
		t.Errorf("%v, %q, %q", err, o, e)
	}
	time.AfterFunc(300*time.Millisecond, func() {
		n.container("c-side", path, runtime.ContainerState_CONTAINER_EXITED)
		n.container("c-app", path, runtime.ContainerState_CONTAINER_EXITED)
	})
	if o, e, err := n.run(t.Context(), "", "logs", "-f", "web", "--all-containers", "--ignore-errors"); err != nil || !strings.Contains(o, "error: "+waits+"\n") || e != "" {
		t.Errorf("%v, %q, %q", err, o, e)
	}
}

func TestLogsFollowEndsWithTheUser(t *testing.T) {
	n := newNode(t)
	n.log(t, "c-side", runtime.ContainerState_CONTAINER_RUNNING, "s")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if out, _, err := n.run(ctx, "", "logs", "-f", "web", "side"); err != nil || out != "s\n" {
		t.Errorf("%v, %q", err, out)
	}
}

// serveCommand is a server that echoes stdin to stdout and ends with 42.
func serveCommand(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(echoing(t))
	t.Cleanup(s.Close)
	return s.URL
}

func echoing(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": {Binary: true, Channels: []wsstream.ChannelType{
			wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
		}}})
		_, streams, err := conn.Open(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		in, err := io.ReadAll(streams[0])
		if err != nil {
			t.Error(err)
		}
		streams[1].Write(in)
		streams[2].Write([]byte("warning\n"))
		json.NewEncoder(streams[3]).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: "42"}}}})
	}
}

// certify writes the certificate of the server's streams to the file that the agent tells; nil is
// that of another server.
func (n *node) certify(t *testing.T, c *x509.Certificate) {
	t.Helper()
	raw := []byte("another")
	if c != nil {
		raw = c.Raw
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	if err := os.WriteFile(filepath.Join(n.dir, "tls.crt"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A server's own certificate, which nobody has signed, is trusted for its streams if it is the one
// that the agent tells, and no other is.
func TestExecOverTLS(t *testing.T) {
	n := newNode(t)
	s := httptest.NewTLSServer(echoing(t))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer s.Close()
	n.url = s.URL
	exec := func(args ...string) (string, error) {
		out, _, err := n.run(t.Context(), "hello", append([]string{"exec", "-i", "web", "-c", "side"}, args...)...)
		return out, err
	}
	n.certify(t, s.Certificate())
	var code usage.Exit
	if out, err := exec("--", "cat"); !errors.As(err, &code) || code != 42 || out != "hello" {
		t.Errorf("%v, %q", err, out)
	}
	n.certify(t, nil)
	if out, err := exec("--", "cat"); err == nil || !strings.Contains(err.Error(), "the server's certificate is not that of") || out != "" {
		t.Errorf("another certificate: %v, %q", err, out)
	}
	if err := os.Remove(filepath.Join(n.dir, "tls.crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := exec("--", "cat"); err == nil || !strings.Contains(err.Error(), "read the server's certificate") {
		t.Errorf("no file: %v", err)
	}
	if _, err := exec("--socket", filepath.Join(n.dir, "cri.sock"), "--", "cat"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a server that --socket names: %v", err)
	}
}

// B.5: exec ends with the command's exit code.
func TestExec(t *testing.T) {
	n := newNode(t)
	n.url = serveCommand(t)
	out, errOut, err := n.run(t.Context(), "hello", "exec", "-it", "web", "-c", "side", "--", "cat", "-n", "-t")
	var code usage.Exit
	if !errors.As(err, &code) || code != 42 || out != "hello" {
		t.Errorf("%v, %q", err, out)
	}
	// Stdin is no terminal, so the command has none.
	if !strings.HasPrefix(errOut, "Unable to use a TTY") || !strings.HasSuffix(errOut, "warning\n") {
		t.Errorf("standard error has %q", errOut)
	}
	if len(n.exec) != 1 {
		t.Fatalf("%d requests", len(n.exec))
	}
	r := n.exec[0]
	if r.GetContainerId() != "c-side" || strings.Join(r.GetCmd(), " ") != "cat -n -t" || r.GetTty() || !r.GetStdin() || !r.GetStdout() || !r.GetStderr() {
		t.Errorf("asked for %+v", r)
	}
}
