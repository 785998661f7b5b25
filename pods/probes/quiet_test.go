package probes

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

// PR25: probes that succeed cost no line of the log, no event and no process, not even for
// debugging; exec's command is all that is run.
func TestSuccessIsQuiet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var commands, events, changes int
		p := New(Options{
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Exec: func(context.Context, string, []string, time.Duration) ([]byte, []byte, int32, error) {
				commands++
				return nil, nil, 0, nil
			},
			Failed:  func(Event) { events++ },
			Changed: func(string) { changes++ },
		})
		defer p.Close()
		probe := func(h corev1.ProbeHandler) *corev1.Probe {
			return &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}
		}
		o := podOf(corev1.Container{
			Name:           "app",
			ReadinessProbe: probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(port), Path: "/"}}),
			LivenessProbe:  probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}),
		}, corev1.Container{Name: "other", LivenessProbe: probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}})})
		p.Set("u", o, "127.0.0.1", []cycle.ProbeSet{
			{Container: "app", ID: "1", Started: time.Now(), Readiness: true, Liveness: true},
			{Container: "other", ID: "2", Started: time.Now(), Liveness: true},
		})
		time.Sleep(100*time.Second + 500*time.Millisecond)
		synctest.Wait()
		if log.Len() > 0 || events > 0 || changes > 3 {
			t.Errorf("%d events, %d changes, log:\n%s", events, changes, log.String())
		}
		if commands < 95 || commands > 102 {
			t.Errorf("%d commands in 100 s of one exec probe", commands)
		}
	})
}

// PR27: the agent connects, in the node's network: what listens on the node's loopback address sees
// that as its peer, from each kind of probe.
func TestPeerIsTheNode(t *testing.T) {
	peers := make(chan string, 16)
	address := serve(t, func(conn net.Conn) {
		peers <- conn.RemoteAddr().(*net.TCPAddr).IP.String()
		conn.Close()
	})
	for name, h := range map[string]corev1.ProbeHandler{
		"http": {HTTPGet: &corev1.HTTPGetAction{Port: portOf(t, address), Path: "/"}},
		"tcp":  {TCPSocket: &corev1.TCPSocketAction{Port: portOf(t, address)}},
		"grpc": {GRPC: &corev1.GRPCAction{Port: portOf(t, address).IntVal}},
	} {
		probeOnce(t, h, time.Second)
		select {
		case peer := <-peers:
			if peer != "127.0.0.1" {
				t.Errorf("%s: the peer is %s", name, peer)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: nobody connected", name)
		}
		for len(peers) > 0 { // gRPC tries again
			<-peers
		}
	}
}
