package translate

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func translated(t *testing.T, in Input, o ContainerInput) *runtime.ContainerConfig {
	t.Helper()
	if o.Image == nil {
		o.Image = &runtime.Image{}
	}
	config, err := Container(in, &in.Pod.Spec.Containers[0], o)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// HK14: every signal of the API has one in the CRI.
func TestStopSignal(t *testing.T) {
	for signal, want := range map[corev1.Signal]string{
		corev1.SIGTERM: "SIGNAL_SIGTERM", corev1.SIGKILL: "SIGNAL_SIGKILL", corev1.SIGUSR1: "SIGNAL_SIGUSR1", corev1.SIGQUIT: "SIGNAL_SIGQUIT",
		corev1.SIGRTMIN: "SIGNAL_SIGRTMIN", corev1.SIGRTMINPLUS1: "SIGNAL_SIGRTMINPLUS1", corev1.SIGRTMAXMINUS14: "SIGNAL_SIGRTMAXMINUS14", corev1.SIGRTMAX: "SIGNAL_SIGRTMAX",
	} {
		in := input(specPod(t, "os: {name: linux}", "lifecycle: {stopSignal: "+string(signal)+"}"))
		if got := translated(t, in, ContainerInput{}).GetStopSignal().String(); got != want {
			t.Errorf("%s: %s, want %s", signal, got, want)
		}
	}
	if got := translated(t, input(specPod(t, "", "")), ContainerInput{}).GetStopSignal(); got != runtime.Signal_SIGNAL_RUNTIME_DEFAULT {
		t.Errorf("without one: %s", got)
	}
	for _, signal := range []string{"SIGFOO", "RUNTIME_DEFAULT", "TERM"} {
		in := input(specPod(t, "", "lifecycle: {stopSignal: "+signal+"}"))
		_, err := Container(in, &in.Pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
		checkText(t, err, fmt.Sprintf("lifecycle.stopSignal: %q is not known: invalid argument", signal), errdefs.IsInvalidArgument)
	}
}

// EV2, EV10, EV12
func TestCommand(t *testing.T) {
	for _, tt := range []struct{ container, command, args string }{
		{"", "[]", "[]"},
		{"command: [a, b]", "[a b]", "[]"},
		{"args: [c]", "[]", "[c]"},
		{"command: [$(X)], args: [$(V), $$(X), $(NO)], env: [{name: X, value: x}, {name: V, value: $(X)v}]", "[x]", "[xv $(X) $(NO)]"},
	} {
		config := translated(t, input(specPod(t, "", tt.container)), ContainerInput{})
		if got := fmt.Sprint(config.GetCommand()); got != tt.command {
			t.Errorf("%s: command %s, want %s", tt.container, got, tt.command)
		}
		if got := fmt.Sprint(config.GetArgs()); got != tt.args {
			t.Errorf("%s: args %s, want %s", tt.container, got, tt.args)
		}
	}
	for _, tt := range []struct {
		container        string
		stdin, once, tty bool
		dir              string
	}{
		{"", false, false, false, ""}, {"stdin: true", true, false, false, ""}, {"stdinOnce: true", false, true, false, ""},
		{"tty: true, workingDir: /w", false, false, true, "/w"},
	} {
		c := translated(t, input(specPod(t, "", tt.container)), ContainerInput{})
		if c.GetStdin() != tt.stdin || c.GetStdinOnce() != tt.once || c.GetTty() != tt.tty || c.GetWorkingDir() != tt.dir {
			t.Errorf("%s: %v", tt.container, c)
		}
	}
}

func TestImageReference(t *testing.T) {
	in := input(specPod(t, "", ""))
	in.Handler = "wasm"
	for ref, want := range map[string]string{"": "example.org/app:1", "sha256:abc": "sha256:abc"} {
		i := translated(t, in, ContainerInput{ImageRef: ref}).GetImage()
		if i.GetImage() != want || i.GetUserSpecifiedImage() != "example.org/app:1" || i.GetRuntimeHandler() != "wasm" {
			t.Errorf("%q: %v", ref, i)
		}
	}
	_, err := Container(in, &in.Pod.Spec.Containers[0], ContainerInput{})
	checkText(t, err, `translate container "app": its image is not known`, errdefs.IsFailedPrecondition)
}

func TestAttempts(t *testing.T) {
	pod := specPod(t, "", "")
	grace := int64(7)
	pod.DeletionGracePeriodSeconds = &grace
	config := translated(t, input(pod), ContainerInput{Attempt: 12})
	a := config.GetAnnotations()
	if config.GetMetadata().GetAttempt() != 12 || config.GetLogPath() != "app/12.log" || a[RestartCountAnnotation] != "12" || a[DeletionGraceAnnotation] != "7" {
		t.Errorf("%v %q %v", config.GetMetadata(), config.GetLogPath(), a)
	}
	if _, ok := a[PortsAnnotation]; ok || a[MarkAnnotation] != "v1" {
		t.Errorf("annotations %v", a)
	}
}

// The output of a debug container waits for who asked for it and takes part (EP6).
func TestOutputOfDebugContainersWaits(t *testing.T) {
	for _, tt := range []struct {
		ephemeral bool
		container string
		want      string
	}{{true, "stdin: true, stdinOnce: true", "true"}, {true, "stdin: true", ""}, {false, "stdin: true, stdinOnce: true", ""}} {
		config := translated(t, input(specPod(t, "", tt.container)), ContainerInput{Ephemeral: tt.ephemeral})
		if got := config.GetAnnotations()["io.sunaba.await-attach"]; got != tt.want {
			t.Errorf("ephemeral %v, %s: %q, want %q", tt.ephemeral, tt.container, got, tt.want)
		}
	}
}

// NW8 and the termination message: what is mounted beside the volumes.
func TestMounts(t *testing.T) {
	own := func(path string) []*runtime.Mount {
		return []*runtime.Mount{{ContainerPath: path, HostPath: "/v", Readonly: true, Propagation: runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL}}
	}
	for _, tt := range []struct {
		name, container, hosts, log string
		mounts                      []*runtime.Mount
		want                        string
	}{
		{"none", "terminationMessagePath: /t", "", "", nil, "[]"},
		{"hosts", "", "/h", "", own("/data"), "[/data=/v /etc/hosts=/h]"},
		{"own hosts", "", "/h", "", own("/etc/hosts"), "[/etc/hosts=/v]"},
		{"own hosts, not clean", "", "/h", "", own("/etc//hosts/"), "[/etc//hosts/=/v]"},
		{"own hosts in the spec only", "volumeMounts: [{name: v, mountPath: /etc/hosts}]", "/h", "", nil, "[]"},
		{"below /etc", "", "/h", "", own("/etc"), "[/etc=/v /etc/hosts=/h]"},
		{"log", "terminationMessagePath: /dev/t", "", "/l", own("/data"), "[/data=/v /dev/t=/l]"},
		{"log without a path", "", "", "/l", nil, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, "", tt.container))
			in.Hosts = tt.hosts
			config := translated(t, in, ContainerInput{Mounts: tt.mounts, TerminationLog: tt.log})
			got := []string{}
			for _, m := range config.GetMounts() {
				got = append(got, m.GetContainerPath()+"="+m.GetHostPath())
				if len(m.GetUidMappings()) != 0 || len(m.GetGidMappings()) != 0 {
					t.Errorf("%v is mapped", m)
				}
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("%v, want %s", got, tt.want)
			}
		})
	}
}

// SE11: a mount is shown with the pod's users, and otherwise stays as it is.
func TestMountsOfUserNamespace(t *testing.T) {
	in := input(specPod(t, "hostUsers: false", "terminationMessagePath: /t"))
	in.UserNamespace, in.Hosts = 65536, "/h"
	volume := &runtime.Mount{ContainerPath: "/v", HostPath: "/v", Readonly: true, RecursiveReadOnly: true, MountOptions: []string{"nodev"}}
	config := translated(t, in, ContainerInput{Mounts: []*runtime.Mount{volume}, TerminationLog: "/l"})
	if len(config.GetMounts()) != 3 {
		t.Fatalf("%d mounts", len(config.GetMounts()))
	}
	for _, m := range config.GetMounts() {
		for _, list := range [][]*runtime.IDMapping{m.GetUidMappings(), m.GetGidMappings()} {
			if len(list) != 1 || list[0].GetHostId() != 65536 || list[0].GetContainerId() != 0 || list[0].GetLength() != 65536 {
				t.Errorf("%s: %v", m.GetContainerPath(), list)
			}
		}
	}
	if m := config.GetMounts()[0]; !m.GetReadonly() || !m.GetRecursiveReadOnly() || len(m.GetMountOptions()) != 1 || volume.GetUidMappings() != nil {
		t.Errorf("%v of %v", m, volume)
	}
	in.UserNamespace = 0
	_, err := Container(in, &in.Pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
	checkText(t, err, `spec.hostUsers: pod "web_default(u-1)" has no range of ids assigned`, errdefs.IsFailedPrecondition)
	_, _, err = Sandbox(in)
	checkText(t, err, `spec.hostUsers: pod "web_default(u-1)" has no range of ids assigned`, errdefs.IsFailedPrecondition)
}
