package validation

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// initOnly is why a regular init container has no probes and hooks (IN4).
const initOnly = "must not be given for an init container without restartPolicy Always"

// checkProbes checks PR1.
func checkProbes(p *fields.Problems, c Container) {
	for _, probe := range []struct {
		name string
		*corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if probe.Probe == nil {
			continue
		}
		at := c.Path + "." + probe.name
		if c.Init && !c.Sidecar() {
			p.Add(at, initOnly)
			continue
		}
		checkProbe(p, at, c, probe.Probe)
		if probe.name != "readinessProbe" && probe.SuccessThreshold != 1 {
			p.Value(at+".successThreshold", probe.SuccessThreshold, "must be 1")
		}
		grace := probe.Probe.TerminationGracePeriodSeconds
		switch {
		case grace == nil:
		case probe.name == "readinessProbe":
			p.Value(at+".terminationGracePeriodSeconds", *grace, "must not be given for readinessProbes")
		default:
			fields.Between(p, at+".terminationGracePeriodSeconds", *grace, 1, math.MaxInt32)
		}
	}
}

func checkProbe(p *fields.Problems, at string, c Container, probe *corev1.Probe) {
	h := probe.ProbeHandler
	if count(h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil, h.GRPC != nil) != 1 {
		p.Add(at, "must have exactly one of exec, httpGet, tcpSocket, grpc")
	}
	checkExec(p, at+".exec", h.Exec)
	checkHTTP(p, at+".httpGet", c, h.HTTPGet)
	if h.TCPSocket != nil {
		checkPort(p, at+".tcpSocket.port", c, h.TCPSocket.Port)
	}
	if h.GRPC != nil {
		fields.Between(p, at+".grpc.port", h.GRPC.Port, 1, 65535)
	}
	fields.Between(p, at+".initialDelaySeconds", probe.InitialDelaySeconds, 0, math.MaxInt32)
	fields.Between(p, at+".timeoutSeconds", probe.TimeoutSeconds, 1, math.MaxInt32)
	fields.Between(p, at+".periodSeconds", probe.PeriodSeconds, 1, math.MaxInt32)
	fields.Between(p, at+".successThreshold", probe.SuccessThreshold, 1, math.MaxInt32)
	fields.Between(p, at+".failureThreshold", probe.FailureThreshold, 1, math.MaxInt32)
}

// checkLifecycle checks HK1, HK11 and HK14.
func checkLifecycle(p *fields.Problems, pod *corev1.Pod, c Container) {
	l := c.Lifecycle
	if l == nil {
		return
	}
	at := c.Path + ".lifecycle"
	if c.Init && !c.Sidecar() {
		p.Add(at, initOnly)
		return
	}
	for _, hook := range []struct {
		name string
		*corev1.LifecycleHandler
	}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
		if h := hook.LifecycleHandler; h != nil {
			at := at + "." + hook.name
			if count(h.Exec != nil, h.HTTPGet != nil, h.Sleep != nil, h.TCPSocket != nil) != 1 {
				p.Add(at, "must have exactly one of exec, httpGet, sleep")
			}
			checkExec(p, at+".exec", h.Exec)
			checkHTTP(p, at+".httpGet", c, h.HTTPGet)
			if h.Sleep != nil {
				fields.Between(p, at+".sleep.seconds", h.Sleep.Seconds, 0, *pod.Spec.TerminationGracePeriodSeconds)
			}
		}
	}
	if s := l.StopSignal; s != nil {
		if pod.Spec.OS == nil || pod.Spec.OS.Name != corev1.Linux {
			p.Add(at+".stopSignal", "must not be given without spec.os.name linux")
		}
		if !isSignal(*s) {
			p.Value(at+".stopSignal", string(*s), "is no name of a signal, as SIGTERM or SIGRTMIN+1")
		}
	}
}

// signals are those that k8s.io/api lists, except the real-time ones between the first and the
// last.
var signals = []corev1.Signal{
	corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE, corev1.SIGHUP,
	corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE, corev1.SIGPOLL, corev1.SIGPROF,
	corev1.SIGPWR, corev1.SIGQUIT, corev1.SIGSEGV, corev1.SIGSTKFLT, corev1.SIGSTOP, corev1.SIGSYS, corev1.SIGTERM, corev1.SIGTRAP,
	corev1.SIGTSTP, corev1.SIGTTIN, corev1.SIGTTOU, corev1.SIGURG, corev1.SIGUSR1, corev1.SIGUSR2, corev1.SIGVTALRM, corev1.SIGWINCH,
	corev1.SIGXCPU, corev1.SIGXFSZ, corev1.SIGRTMIN, corev1.SIGRTMAX,
}

func isSignal(s corev1.Signal) bool {
	if slices.Contains(signals, s) {
		return true
	}
	for i := 1; i <= 15; i++ {
		if s == corev1.Signal(fmt.Sprintf("SIGRTMIN+%d", i)) || i <= 14 && s == corev1.Signal(fmt.Sprintf("SIGRTMAX-%d", i)) {
			return true
		}
	}
	return false
}

func checkExec(p *fields.Problems, path string, e *corev1.ExecAction) {
	if e != nil && len(e.Command) == 0 {
		p.Add(path+".command", "is required")
	}
}

func checkHTTP(p *fields.Problems, path string, c Container, h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	checkPort(p, path+".port", c, h.Port)
	fields.OneOf(p, path+".scheme", h.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	for i, header := range h.HTTPHeaders {
		p.Value(fmt.Sprintf("%s.httpHeaders[%d].name", path, i), header.Name, validation.IsHTTPHeaderName(header.Name)...)
	}
}

// checkPort checks a port by number, or by the name of a port of this container (PR14).
func checkPort(p *fields.Problems, path string, c Container, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		fields.Between(p, path, port.IntVal, 1, 65535)
		return
	}
	if errs := validation.IsValidPortName(port.StrVal); len(errs) > 0 {
		p.Value(path, port.StrVal, errs...)
		return
	}
	for _, own := range c.Ports {
		if own.Name == port.StrVal {
			return
		}
	}
	p.Value(path, port.StrVal, "is the name of no port of this container")
}
