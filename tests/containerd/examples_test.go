package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

const examples = "../../examples"

// TestExamples runs the pod of the examples with each of the configurations that the document
// shows.
func TestExamples(t *testing.T) {
	imported := func(path string) func(string) (string, error) {
		return func(config string) (string, error) {
			file := must(filepath.Abs(filepath.Join(examples, path)))(t)
			return fmt.Sprintf("imports = [%q]\n%s", file, config), nil
		}
	}
	appended := func(config string) (string, error) {
		text := string(must(os.ReadFile(examples + "/containerd/config-1.6.toml"))(t))
		return config + strings.Replace(text, "version = 2\n", "", 1), nil
	}
	rendered := func(config string) (string, error) { // as k3s does
		all := template.Must(template.New("config").Parse(string(must(os.ReadFile(examples + "/k3s/config-v3.toml.tmpl"))(t))))
		template.Must(all.New("base").Parse(config))
		var b strings.Builder
		err := all.Execute(&b, struct{ SystemdCgroup bool }{})
		return b.String() + "\n[plugins.'io.containerd.cri.v1.images']\nuse_local_image_pull = true\n", err
	}
	for _, release := range world.releases {
		ways := map[string]func(string) (string, error){"containerd/config.toml": imported("containerd/config.toml"), "k3s": rendered}
		if release.old() {
			ways = map[string]func(string) (string, error){"containerd/config-1.6.toml": appended}
		}
		for way, render := range ways {
			t.Run(way, func(t *testing.T) {
				example(newBenchOf(t, Options{Release: release, Default: "sunaba", Render: render}))
			})
		}
	}
}

// example runs the example's pod.
func example(b *bench) {
	var manifest corev1.Pod
	check(b.t, yaml.UnmarshalStrict(must(os.ReadFile(examples+"/containerd/pod.yaml"))(b.t), &manifest))
	b.image(world.server)
	b.image(world.busybox)
	p := b.runPod(*manifest.Spec.RuntimeClassName, manifest.Name, func(c *runtime.PodSandboxConfig) { c.Annotations = manifest.Annotations })
	guest := p.begin(manifest.Spec.Containers[0].Name, world.server, nil, nil)
	guest.says("listening")
	if text := p.fetch(8080); !strings.Contains(text, "wasip1") {
		b.t.Errorf("the server says %q", text)
	}
	p.begin(manifest.Spec.Containers[1].Name, world.busybox, manifest.Spec.Containers[1].Command, nil)
	if len(b.shims()) != 1 {
		b.t.Errorf("shims %v", b.shims())
	}
	p.remove()
}

// TestDocument holds the document against the examples: what it shows of them is what they are.
func TestDocument(t *testing.T) {
	document := string(must(os.ReadFile("../../docs/containerd.md"))(t))
	for _, path := range []string{"containerd/config.toml", "containerd/config-1.6.toml", "containerd/sunaba.toml", "containerd/pod.yaml", "k3s/config-v3.toml.tmpl"} {
		if !strings.Contains(document, "](../examples/"+path+")") {
			t.Errorf("docs/containerd.md does not name examples/%s", path)
		}
		if shown := string(must(os.ReadFile(filepath.Join(examples, path)))(t)); !strings.Contains(document, "\n"+shown+"```\n") {
			t.Errorf("docs/containerd.md does not show examples/%s as it is:\n%s", path, shown)
		}
	}
}
