package cripod

import (
	"strings"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/pods/translate"
)

func pod(id, namespace, name string, annotations map[string]string) *runtime.PodSandbox {
	return &runtime.PodSandbox{Id: id, Metadata: &runtime.PodSandboxMetadata{Namespace: namespace, Name: name}, Annotations: annotations}
}

func some() *node {
	n := &node{
		pods: []*runtime.PodSandbox{
			pod("aaaa1111", "default", "web", nil), pod("aaaa2222", "default", "web", nil), pod("bbbb1111", "kube-system", "dns", map[string]string{"kubernetes.io/config.source": "api"}),
			pod("cccc1111", "", "bare", nil), pod("dddd1111", "default", "mine", map[string]string{translate.MarkAnnotation: "1"}),
		},
		containers: []*runtime.Container{
			{Id: "eeee1111", PodSandboxId: "aaaa2222", Metadata: &runtime.ContainerMetadata{Name: "app"}, State: runtime.ContainerState_CONTAINER_RUNNING},
			{Id: "aaaa3333", PodSandboxId: "bbbb1111", Metadata: &runtime.ContainerMetadata{Name: "dns"}},
		},
		pod: map[string]*runtime.PodSandbox{},
	}
	for _, p := range n.pods {
		n.pod[p.GetId()] = p
	}
	return n
}

func TestFind(t *testing.T) {
	for arg, want := range map[string]string{
		"web":             `pod "web", pod "web"`,
		"default/web":     `pod "web", pod "web"`,
		"kube-system/dns": `pod "kube-system/dns"`,
		"bare":            `pod "bare"`,
		"bbbb":            `pod "kube-system/dns"`,
		"eeee1":           `container "app" of pod "web"`,
		"aaaa3333":        `container "dns" of pod "kube-system/dns"`,
		"aaaa":            `error: 3 ids start with "aaaa"`,
		"dns":             `error: no pod or container is called "dns"`,
		"bbb":             `error: no pod or container is called "bbb"`,
		"other/web":       `error: no pod or container is called "other/web"`,
		"":                `error: no pod or container is called ""`,
	} {
		found, err := some().find(arg)
		var names []string
		for _, f := range found {
			names = append(names, f.name())
		}
		got := strings.Join(names, ", ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want && !(strings.HasPrefix(want, "error") && strings.HasPrefix(got, want)) {
			t.Errorf("%q: %s, want %s", arg, got, want)
		}
	}
}

func TestMayEnd(t *testing.T) {
	n := some()
	for name, want := range map[string][2]string{"web": {"", ""}, "kube-system/dns": {"kubelet", ""}, "mine": {"manifest", "manifest"}} {
		found, err := n.find(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, force := range []bool{false, true} {
			err := found[0].mayEnd(force)
			if (want[i] == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want[i]) {
				t.Errorf("%s, force %v: %v, want %q", name, force, err, want[i])
			}
		}
	}
}

func TestPrint(t *testing.T) {
	list := []Container{{
		ID: "0123456789abcdef", Name: "app", Pod: "web", Namespace: "default", Handler: "wasm", Image: "img:1", State: stateText(runtime.ContainerState_CONTAINER_RUNNING),
		Restarts: 2, Created: time.Unix(100, 0).UTC(),
	}}
	for format, want := range map[string]string{
		output.Table: "ID             NAME   NAMESPACE   POD   HANDLER   IMAGE   STATE     RESTARTS   AGE\n0123456789ab   app    default     web   wasm      img:1   Running   2          60s\n",
		output.YAML:  "restarts: 2",
		output.JSON:  "\"created\": \"1970-01-01T00:01:40Z\"",
	} {
		var out strings.Builder
		if err := Print(&out, list, format, time.Unix(160, 0)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", format, err, out.String())
		}
	}
}
