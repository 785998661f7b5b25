package translate

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// objects are ConfigMaps and Secrets of the namespaces shop and default.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string]string
}

func (o objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, bool) {
	data, ok := o.configMaps[namespace+"/"+name]
	return &corev1.ConfigMap{Data: data}, ok
}

func (o objects) Secret(namespace, name string) (*corev1.Secret, bool) {
	data, ok := o.secrets[namespace+"/"+name]
	secret := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		secret.Data[k] = []byte(v)
	}
	return secret, ok
}

func testNode() Node {
	return Node{
		Name: "edge-1", IPs: []string{"198.51.100.4", "2001:db8::4"}, Memory: 4 << 30,
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("3Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("10Gi"),
		},
		ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local",
		SeccompProfiles: "/var/lib/sunaba/pods/seccomp",
		Resolv:          Resolv{Servers: []string{"198.51.100.53"}, Searches: []string{"corp.example"}, Options: []string{"timeout:2"}},
		Hosts:           []byte("127.0.0.1\tlocalhost\n198.51.100.4\tedge-1\n"),
		MaskedPaths:     []string{"/proc/kcore", "/sys/firmware"}, ReadonlyPaths: []string{"/proc/sys"},
		CgroupV2: true, SwapAccounting: true, HugePageSizes: []string{"2MB", "1GB"},
	}
}

func loadPod(t *testing.T, data string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(data), pod); err != nil {
		t.Fatal(err)
	}
	runtimeclass.Default(pod)
	return pod
}

// specPod is a pod with one container, of which the texts are fields in YAML.
func specPod(t *testing.T, spec, container string) *corev1.Pod {
	t.Helper()
	return loadPod(t, "metadata: {name: web, namespace: default, uid: u-1}\nspec:\n  containers: [{name: app, image: example.org/app:1"+
		comma(container)+"}]\n"+indent(spec))
}

func comma(s string) string {
	if s == "" {
		return ""
	}
	return ", " + s
}

func indent(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(s, "\n", "\n  ") + "\n"
}

func input(pod *corev1.Pod) Input {
	return Input{
		Pod: pod, Node: testNode(), Attempt: 0, IPs: []string{"10.1.0.7", "2001:db8:1::7"},
		LogDirectory: "/var/log/pods", Mark: "v1",
		Objects: objects{
			configMaps: map[string]map[string]string{"shop/settings": {"color": "red", "size": "9"}},
			secrets:    map[string]map[string]string{"shop/login": {"password": "s3cret"}},
		},
	}
}

// readable is a message of the CRI as JSON with sorted keys. The values of variables, which are
// bytes, stand as text.
func readable(t *testing.T, m proto.Message) any {
	t.Helper()
	data, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if c, ok := m.(*runtime.ContainerConfig); ok {
		var envs []string
		for _, e := range c.GetEnvs() {
			envs = append(envs, e.GetKey()+"="+string(e.GetValue()))
		}
		out["envs"] = envs
	}
	return out
}

// SB4, LG1 and what is in whole configurations.
func TestGolden(t *testing.T) {
	for _, name := range []string{"full", "host", "users", "plain"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			in := input(loadPod(t, string(data)))
			in.Attempt, in.UserNamespace = 2, 131072
			if name == "plain" { // as `sunaba run` does: nothing is known of names and logs
				in.Attempt, in.Mark, in.Node.Resolv, in.Node.ClusterDNS = 0, "", Resolv{}, nil
			}
			before := in.Pod.DeepCopy()
			var got bytes.Buffer
			encoder := json.NewEncoder(&got)
			encoder.SetIndent("", "  ")
			encoder.SetEscapeHTML(false)
			sandbox, notes, err := Sandbox(in)
			if err != nil {
				t.Fatal(err)
			}
			hosts := HostsFile(in)
			if hosts != nil {
				in.Hosts = "/var/lib/sunaba/pods/hosts"
			}
			if err := encoder.Encode(map[string]any{"sandbox": readable(t, sandbox), "notes": notes, "hosts": strings.Split(string(hosts), "\n")}); err != nil {
				t.Fatal(err)
			}
			for _, list := range [][]corev1.Container{in.Pod.Spec.InitContainers, in.Pod.Spec.Containers} {
				for i := range list {
					config, err := Container(in, &list[i], ContainerInput{
						Attempt: 1, Image: &runtime.Image{Uid: &runtime.Int64Value{Value: 33}}, ImageRef: "sha256:abc",
						Mounts:         []*runtime.Mount{{ContainerPath: "/data", HostPath: "/volumes/scratch"}},
						TerminationLog: "/var/lib/sunaba/pods/log",
					})
					if err != nil {
						t.Fatal(err)
					}
					if err := encoder.Encode(readable(t, config)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if string(mustJSON(t, before)) != string(mustJSON(t, in.Pod)) {
				t.Error("the pod was changed")
			}
			compare(t, filepath.Join("testdata", name+".golden.json"), got.Bytes())
		})
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; see go test -update and git diff. Got:\n%s", file, got)
	}
}
