//go:build linux

// Package examples tests what stands in its folders: that the programs build for every platform and
// do what they say, and that the manifests are ones that their readers accept.
package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// program builds a Go example for this machine and returns the path of the program.
func program(t *testing.T, name string) string {
	t.Helper()
	data, err := oci.BuildGo(t.Context(), name, oci.Host())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgramsAreGuestsToo(t *testing.T) {
	for _, name := range []string{"greeter", "batch", "page"} {
		module, err := oci.BuildGo(t.Context(), name, oci.Wasip1)
		if err != nil {
			t.Error(err)
		} else if !bytes.HasPrefix(module, []byte("\x00asm\x01\x00\x00\x00")) {
			t.Errorf("%s: not a core WebAssembly module: % x", name, module[:8])
		}
	}
}

func TestBatch(t *testing.T) {
	batch := program(t, "batch")
	input := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(input, []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	for _, c := range []struct {
		name           string
		args           []string
		stdin          string
		code           int
		stdout, stderr string // what must stand in it
	}{
		{"no arguments", nil, "", 0, "batch: 168 primes below 1000\nbatch: done\n", ""},
		{"exit code", []string{"-exit", "7"}, "", 7, "batch: done\n", ""},
		{"file", []string{"-file", input}, "", 0, abc + ", 3 bytes\n", ""},
		{"missing file", []string{"-file", "/nowhere"}, "", 1, "", "no such file"},
		{"stdin", []string{"-stdin"}, "abc", 0, "sha256 stdin " + abc, ""},
		{"lines", []string{"-lines", "2"}, "", 0, "batch: line 1\nbatch: line 2\nbatch: done\n", ""},
		{"lines to stderr", []string{"-lines", "1", "-stderr"}, "", 0, "done", "batch: line 1\n"},
		{"unknown flag", []string{"-x"}, "", 2, "", "-x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			cmd := exec.Command(batch, c.args...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &stdout, &stderr
			if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
			if !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("stdout %q, want %q in it; stderr %q, want %q in it", stdout.String(), c.stdout, stderr.String(), c.stderr)
			}
		})
	}
}

// The greeter must work both ways: it opens a port itself, or takes the listener at descriptor 3.
func TestGreeter(t *testing.T) {
	greeter := program(t, "greeter")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	own, err := node.FreePort()
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name, address string
		env           []string
		files         []*os.File
	}{
		{"given", listener.Addr().String(), []string{"LISTEN_FDS=1"}, []*os.File{file}},
		{"own", fmt.Sprintf("127.0.0.1:%d", own), []string{fmt.Sprintf("PORT=%d", own)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(greeter)
			cmd.Env = append(c.env, "HOSTNAME=here", "GREETING=Good day")
			cmd.ExtraFiles = c.files
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			body := get(t, "http://"+c.address+"/")
			if want := "Good day from linux/" + oci.Host().Architecture + " on here\n"; body != want {
				t.Errorf("answer %q, want %q", body, want)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("after SIGTERM: %v, want exit code 0", err)
			}
		})
	}
}

// get asks until there is an answer.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), node.Patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(body)
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestPodManifests(t *testing.T) {
	paths, err := filepath.Glob("*/*pod.yaml")
	if err != nil || len(paths) < 6 {
		t.Fatalf("manifests %q, %v", paths, err)
	}
	for _, path := range append(paths, "greeter-pod.yaml", "batch-pod.yaml") {
		for document := range bytes.SplitSeq(read(t, path), []byte("\n---\n")) {
			if bytes.Contains(document, []byte("\nkind: ConfigMap\n")) {
				continue
			}
			var pod corev1.Pod
			if err := yaml.UnmarshalStrict(document, &pod); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if pod.Spec.RuntimeClassName == nil || len(pod.Spec.Containers) == 0 {
				t.Errorf("%s: no runtimeClassName or no container", path)
			}
		}
	}
}

// Every image that a manifest names is one that tests/cmd/registry serves.
func TestImagesAreServed(t *testing.T) {
	served := map[string]bool{}
	for _, e := range oci.Examples() {
		served[e.Name+":v1"] = true
	}
	paths, err := filepath.Glob("[^c]*/*pod.yaml") // tests/containerd has images of its own
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "greeter-pod.yaml", "batch-pod.yaml") {
		for line := range strings.Lines(string(read(t, path))) {
			image, ok := strings.CutPrefix(strings.TrimSpace(line), "image: localhost:5000/sunaba/")
			if ok && !served[image] {
				t.Errorf("%s: image %q", path, image)
			}
		}
	}
}

func TestRuntimeClasses(t *testing.T) {
	classes, err := runtimeclass.Parse("runtimeclasses.yaml", read(t, "runtimeclasses.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	handlers := map[string]string{}
	for _, class := range classes {
		handlers[class.Name] = class.Handler
		if class.Overhead == nil || class.Overhead.PodFixed.Memory().IsZero() {
			t.Errorf("%s declares no memory overhead", class.Name)
		}
	}
	if handlers["sunaba-runc"] != "runc" || handlers["sunaba-wasm"] != "wasm" || len(handlers) != 2 {
		t.Errorf("handlers %v", handlers)
	}
}

func TestCrictlFiles(t *testing.T) {
	for path, into := range map[string]any{
		"crictl/pod.json":       &runtime.PodSandboxConfig{},
		"crictl/container.json": &runtime.ContainerConfig{},
	} {
		decoder := json.NewDecoder(bytes.NewReader(read(t, path)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	var endpoints struct {
		Runtime string `json:"runtime-endpoint"`
		Image   string `json:"image-endpoint"`
		Timeout int    `json:"timeout"`
	}
	if err := yaml.UnmarshalStrict(read(t, "crictl/crictl.yaml"), &endpoints); err != nil || endpoints.Runtime != endpoints.Image {
		t.Errorf("crictl.yaml: %+v, %v", endpoints, err)
	}
}

// tests/containerd runs pods with these files; here they are compared with each other.
func TestContainerdFiles(t *testing.T) {
	classes, err := runtimeclass.Parse("runtimeclasses.yaml", read(t, "containerd/runtimeclasses.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var handlers []string
	for _, class := range classes {
		handlers = append(handlers, class.Handler)
	}
	for path, table := range map[string]string{
		"containerd/config.toml": "io.containerd.cri.v1.runtime", "containerd/config-1.6.toml": "io.containerd.grpc.v1.cri",
	} {
		var config struct {
			Plugins map[string]struct {
				Containerd struct {
					Runtimes map[string]map[string]any `toml:"runtimes"`
				} `toml:"containerd"`
			} `toml:"plugins"`
		}
		if err := toml.Unmarshal(read(t, path), &config); err != nil {
			t.Fatal(err)
		}
		runtimes := slices.Sorted(maps.Keys(config.Plugins[table].Containerd.Runtimes))
		if !slices.Equal(runtimes, handlers) {
			t.Errorf("%s has the runtimes %q, the RuntimeClasses name %q", path, runtimes, handlers)
		}
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(read(t, "containerd/pod.yaml"), &pod); err != nil || !slices.Contains(handlers, *pod.Spec.RuntimeClassName) {
		t.Errorf("pod.yaml: %v, %v", pod.Spec.RuntimeClassName, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The index of an example must hold what the node chooses from.
func TestExampleIndex(t *testing.T) {
	index, err := oci.ExampleIndex(t.Context(), "batch", "batch")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []v1.Platform
	for _, m := range manifest.Manifests {
		got = append(got, *m.Platform)
	}
	want := []v1.Platform{oci.LinuxAMD64, oci.LinuxARM64, oci.Wasip1, oci.Unknown}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("platforms %v, want %v", got, want)
	}
}
