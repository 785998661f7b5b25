package scenario

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// kubelet runs the pod of one manifest as a kubelet does, as far as the examples need it: volumes
// (emptyDir, configMap), init containers, and what is run by exec in a container, hooks and probes.
type kubelet struct {
	*pod
	spec       corev1.PodSpec
	configMaps map[string]map[string]string // data by name
	volumes    map[string]string            // folder of the host by name
	containers map[string]*container
}

// runManifest runs the manifest's pod and starts its containers, with their hooks.
func (m *machine) runManifest(path string) *kubelet {
	m.t.Helper()
	k := &kubelet{configMaps: map[string]map[string]string{}, volumes: map[string]string{}, containers: map[string]*container{}}
	var name string
	var annotations map[string]string
	for document := range bytes.SplitSeq(world.Manifest(m.t, path), []byte("\n---\n")) {
		var meta metav1.TypeMeta
		var pod corev1.Pod
		var configMap corev1.ConfigMap
		err := yaml.Unmarshal(document, &meta)
		switch meta.Kind {
		case "Pod":
			err = yaml.UnmarshalStrict(document, &pod)
			name, annotations, k.spec = pod.Name, pod.Annotations, pod.Spec
		case "ConfigMap":
			err = yaml.UnmarshalStrict(document, &configMap)
			k.configMaps[configMap.Name] = configMap.Data
		default:
			m.t.Errorf("%s: kind %q", path, meta.Kind)
		}
		if err != nil {
			m.t.Fatalf("%s: %v", path, err)
		}
	}
	config := m.podConfig(name)
	config.Annotations = annotations
	for _, c := range k.spec.Containers {
		for _, p := range c.Ports {
			config.PortMappings = append(config.PortMappings, &runtime.PortMapping{ContainerPort: p.ContainerPort})
		}
	}
	k.makeVolumes(m.t)
	k.pod = m.runConfig(strings.TrimPrefix(*k.spec.RuntimeClassName, "sunaba-"), config)
	for i := range k.spec.InitContainers {
		k.begin(&k.spec.InitContainers[i]).expectEnd(0, "Completed")
	}
	for i := range k.spec.Containers {
		c := &k.spec.Containers[i]
		k.containers[c.Name] = k.begin(c)
		if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			if answer := k.exec(c.Name, c.Lifecycle.PostStart.Exec); answer.GetExitCode() != 0 {
				m.t.Errorf("postStart of %s: %v", c.Name, answer)
			}
		}
	}
	return k
}

func (k *kubelet) makeVolumes(t *testing.T) {
	t.Helper()
	for _, v := range k.spec.Volumes {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		k.volumes[v.Name] = dir
		if v.ConfigMap != nil {
			project(t, dir, k.configMaps[v.ConfigMap.Name])
		}
	}
}

// begin pulls the image of a container and starts it.
func (k *kubelet) begin(c *corev1.Container) *container {
	k.t.Helper()
	k.Pull(c.Image, k.handler)
	config := containerConfig(c.Image, c.Args...)
	config.Command = c.Command
	config.Annotations = map[string]string{"io.kubernetes.container.restartCount": "0"}
	if len(c.Ports) > 0 {
		config.Annotations["io.kubernetes.container.ports"] = string(must(json.Marshal(c.Ports)))
	}
	for _, e := range c.Env {
		config.Envs = append(config.Envs, &runtime.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	for _, mount := range c.VolumeMounts {
		config.Mounts = append(config.Mounts, &runtime.Mount{HostPath: k.volumes[mount.Name], ContainerPath: mount.MountPath, Readonly: mount.ReadOnly})
	}
	return k.pod.begin(config)
}

// exec runs the command of a hook or probe.
func (k *kubelet) exec(name string, action *corev1.ExecAction) *runtime.ExecSyncResponse {
	k.t.Helper()
	answer, err := k.ExecSync(k.t.Context(), &runtime.ExecSyncRequest{ContainerId: k.containers[name].id, Cmd: action.Command, Timeout: 60})
	if err != nil {
		k.t.Fatalf("exec %q in %s: %v", action.Command, name, err)
	}
	return answer
}

// probe runs a container's liveness probe.
func (k *kubelet) probe(name string) *runtime.ExecSyncResponse {
	k.t.Helper()
	return k.exec(name, k.named(name).LivenessProbe.Exec)
}

// end stops a container, after its hook.
func (k *kubelet) end(name string) *container {
	k.t.Helper()
	if l := k.named(name).Lifecycle; l != nil && l.PreStop != nil {
		if answer := k.exec(name, l.PreStop.Exec); answer.GetExitCode() != 0 {
			k.t.Errorf("preStop of %s: %v", name, answer)
		}
	}
	k.containers[name].stop(60)
	return k.containers[name]
}

func (k *kubelet) named(name string) *corev1.Container {
	for i := range k.spec.Containers {
		if k.spec.Containers[i].Name == name {
			return &k.spec.Containers[i]
		}
	}
	k.t.Fatalf("the pod has no container %q", name)
	return nil
}

// project makes a folder show a version of a ConfigMap, as the kubelet's atomic writer does: the
// files are in a folder of their own, the link "..data" leads there, each key is a link through it,
// and a new version comes by exchanging that one.
func project(t *testing.T, dir string, data map[string]string) {
	t.Helper()
	before, _ := os.Readlink(filepath.Join(dir, "..data"))
	version, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Chmod(version, 0o755))
	for key, value := range data {
		check(os.WriteFile(filepath.Join(version, key), []byte(value), 0o644))
	}
	next := filepath.Join(dir, "..data_tmp")
	check(os.Symlink(filepath.Base(version), next))
	check(os.Rename(next, filepath.Join(dir, "..data")))
	for key := range data {
		link := filepath.Join(dir, key)
		if _, err := os.Lstat(link); err != nil {
			check(os.Symlink(filepath.Join("..data", key), link))
		}
	}
	if before != "" {
		check(os.RemoveAll(filepath.Join(dir, before)))
	}
}
