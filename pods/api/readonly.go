package api

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// observe registers what the socket and the read-only API both serve.
func observe(mux *http.ServeMux, o Options) {
	health := func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Agent.Health(); err != nil {
			text(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		text(w, http.StatusOK, "ok")
	}
	mux.HandleFunc("GET /healthz", health)
	mux.HandleFunc("GET /livez", health)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := unready(o.Agent); len(missing) > 0 {
			text(w, http.StatusServiceUnavailable, strings.Join(missing, "\n")+"\n")
			return
		}
		text(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { serveMetrics(w, o) })
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		r, _ := FindResource(manifest.KindPod)
		f, err := Query{}.filter(r)
		var l *list
		if err == nil {
			l, err = listItems(o.Agent, r, f)
		}
		answer(w, l, err)
	})
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	if _, err := io.WriteString(w, body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// unready names the files that are not loaded and the pods that should be Ready and are not.
func unready(a Agent) []string {
	var missing []string
	for _, m := range a.Manifests() {
		if m.Status == ManifestRefused {
			missing = append(missing, fmt.Sprintf("manifest %s: %s", m.File, m.Status))
		}
	}
	for _, p := range a.Pods() {
		if p.Spec.RestartPolicy == corev1.RestartPolicyAlways && !cycle.Ready(p) {
			missing = append(missing, fmt.Sprintf("pod %s/%s: not Ready", p.Namespace, p.Name))
		}
	}
	return missing
}

// ReadOnly lets only what reads pass to a handler that is served on an address. If that is a
// loopback one, requests must name one too: a web page whose name was made to lead here must not
// read what stands here.
func ReadOnly(h http.Handler, served net.Addr) http.Handler {
	tcp, ok := served.(*net.TCPAddr)
	local := ok && tcp.IP.IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			text(w, http.StatusMethodNotAllowed, "this API is read-only\n")
		case r.ContentLength != 0:
			text(w, http.StatusBadRequest, "a request has no body here\n")
		case local && !IsLocal(r.Host):
			text(w, http.StatusForbidden, "this API is for the node itself\n")
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// IsLocal says whether the host of a request is a loopback address, or the name of one that no
// foreign name server can give.
func IsLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// serveMetrics writes this package's metrics and the agent's.
func serveMetrics(w http.ResponseWriter, o Options) {
	var b bytes.Buffer
	writeMetrics(&b, o.Agent)
	if o.Metrics != nil {
		if err := o.Metrics(&b); err != nil {
			refuse(w, fmt.Errorf("write metrics: %w", err))
			return
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if _, err := w.Write(b.Bytes()); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// writeMetrics counts pods, containers, restarts and manifests. Names are a kubelet's where they
// mean the same.
func writeMetrics(b *bytes.Buffer, a Agent) {
	phases, states := map[string]int{}, map[string]int{}
	var restarts []string
	running := 0
	for _, p := range a.Pods() {
		phases[string(p.Status.Phase)]++
		if p.Status.Phase == corev1.PodRunning {
			running++
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			states[containerState(c)]++
			restarts = append(restarts, fmt.Sprintf("{namespace=%s,pod=%s,container=%s} %d", quote(p.Namespace), quote(p.Name), quote(c.Name), c.RestartCount))
		}
	}
	files := map[string]int{}
	for _, m := range a.Manifests() {
		files[m.Status]++
	}
	gauge := func(name, help string) { fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name) }
	gauge("kubelet_running_pods", "Number of pods that are running.")
	fmt.Fprintf(b, "kubelet_running_pods %d\n", running)
	gauge("kubelet_running_containers", "Number of containers by state.")
	for _, s := range []string{"created", "exited", "running", "unknown"} {
		fmt.Fprintf(b, "kubelet_running_containers{container_state=%q} %d\n", s, states[s])
	}
	gauge("sunaba_pods", "Number of pods by phase.")
	for _, p := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		fmt.Fprintf(b, "sunaba_pods{phase=%q} %d\n", p, phases[string(p)])
	}
	gauge("sunaba_pods_manifests_refused", "Number of manifest files that are refused.")
	fmt.Fprintf(b, "sunaba_pods_manifests_refused %d\n", files[ManifestRefused])
	const total = "sunaba_pods_container_restarts_total"
	fmt.Fprintf(b, "# HELP %s Number of restarts of a container.\n# TYPE %s counter\n", total, total)
	for _, line := range restarts {
		b.WriteString(total + line + "\n")
	}
}

// containerState is a container's state in the words of the kubelet's metric.
func containerState(c corev1.ContainerStatus) string {
	switch {
	case c.State.Running != nil:
		return "running"
	case c.State.Terminated != nil:
		return "exited"
	case c.State.Waiting != nil && c.ContainerID != "" && c.LastTerminationState.Terminated != nil:
		return "exited"
	case c.State.Waiting != nil && c.ContainerID != "":
		return "created"
	}
	return "unknown"
}

// quote is a value of a label.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
