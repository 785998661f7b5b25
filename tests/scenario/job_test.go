package scenario

import (
	"regexp"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// platformOf is what a program of an example says it is, under each handler.
func platformOf(handler string) string {
	if handler == "wasm" {
		return "wasip1/wasm"
	}
	return oci.Host().OS + "/" + oci.Host().Architecture
}

// withPort declares a container port as the kubelet does for every port of a pod.
func withPort(port, hostPort int32) func(*runtime.PodSandboxConfig) {
	return func(config *runtime.PodSandboxConfig) {
		config.PortMappings = append(config.PortMappings, &runtime.PortMapping{Protocol: runtime.Protocol_TCP, ContainerPort: port, HostPort: hostPort})
	}
}

// The main job: one reference, pulled once and without a handler, runs under every handler, each
// with its own variant; a server answers at the pod's address and a job ends with its exit code.
func TestMainJob(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	m.pull(world.Batch)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler, withPort(8080, 0), func(config *runtime.PodSandboxConfig) { config.Hostname = "greeter-" + handler })
			config := containerConfig(world.Greeter)
			config.Envs = []*runtime.KeyValue{{Key: "GREETING", Value: []byte("Good day")}}
			server := p.begin(config)
			server.says("listening")
			want := "Good day from " + platformOf(handler) + " on greeter-" + handler + "\n"
			if got := m.Get("http://" + p.ip() + ":8080/"); got != want {
				t.Errorf("answer %q, want %q", got, want)
			}
			server.says("GET /")

			job := p.begin(containerConfig(world.Batch, "-primes", "100000", "-lines", "2", "-exit", "7"))
			job.expectEnd(7, "Error")
			if text := job.text(); !strings.Contains(text, "running as "+platformOf(handler)+"\nbatch: 9592 primes below 100000\nbatch: line 1\nbatch: line 2\nbatch: done\n") {
				t.Errorf("the job said %q", text)
			}

			server.stop(60)
			server.expectEnd(0, "Completed")
			server.says("stopping")
			p.stop()
			if state := p.status().GetStatus().GetState(); state != runtime.PodSandboxState_SANDBOX_NOTREADY {
				t.Errorf("a stopped pod is %v", state)
			}
			p.remove()
			m.clean()
		})
	}
}

// The same reference in pods of two handlers at the same time.
func TestSameReferenceAtOnce(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	answers := map[string]string{}
	var pods []*pod
	for _, handler := range []string{"runc", "wasm"} {
		p := m.run(handler, withPort(8080, 0))
		p.begin(containerConfig(world.Greeter))
		pods = append(pods, p)
	}
	for _, p := range pods {
		answers[p.handler] = m.Get("http://" + p.ip() + ":8080/")
	}
	for _, p := range pods {
		if !strings.Contains(answers[p.handler], platformOf(p.handler)) {
			t.Errorf("under %s: %q", p.handler, answers[p.handler])
		}
	}
}

// Status names the handlers, and the default one once more as "".
func TestStatusListsHandlers(t *testing.T) {
	m := start(t)
	status, err := m.Status(t.Context(), &runtime.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, handler := range status.GetRuntimeHandlers() {
		names = append(names, handler.GetName())
		if handler.GetFeatures() == nil {
			t.Errorf("handler %q has no features", handler.GetName())
		}
	}
	if got, want := strings.Join(names, ","), ",crun,runc,wasm"; got != want {
		t.Errorf("handlers %q, want %q", got, want)
	}
	version, err := m.Version(t.Context(), &runtime.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if version.GetRuntimeName() != "sunaba" || version.GetRuntimeApiVersion() != "v1" || version.GetVersion() != "0.1.0" {
		t.Errorf("version %v", version)
	}
	// Semantic: kubelets show any other as "Unknown". What is stamped is the commit in the binaries of `make`.
	if v := version.GetRuntimeVersion(); !regexp.MustCompile(`^0\.1\.0-dev\+[0-9A-Za-z.-]+$`).MatchString(v) {
		t.Errorf("runtime version %q", v)
	}
}

// A guest's ports come from the kubelet's annotation where there is one.
func TestPortsFromAnnotation(t *testing.T) {
	m := start(t)
	m.pull(world.Greeter)
	p := m.run("wasm")
	config := containerConfig(world.Greeter)
	config.Annotations = map[string]string{"io.kubernetes.container.ports": `[{"name":"http","containerPort":8123,"protocol":"TCP"}]`}
	p.begin(config).says("listening")
	if got := m.Get("http://" + p.ip() + ":8123/"); !strings.Contains(got, "wasip1/wasm") {
		t.Errorf("answer %q", got)
	}
}
