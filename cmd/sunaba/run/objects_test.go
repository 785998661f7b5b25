package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

const (
	podHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
	class   = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: light}\nhandler: wasm\noverhead: {podFixed: {memory: 8Mi}}\n"
)

// spec is a pod with one container and further lines of its spec.
func spec(pod string) string {
	if pod != "" {
		pod = "  " + strings.ReplaceAll(strings.TrimSpace(pod), "\n", "\n  ") + "\n"
	}
	return podHead + "spec:\n" + pod + "  containers: [{name: c, image: 'example.org/c:1'}]\n"
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want %q", err, want)
	case want != "" && !errdefs.IsInvalidArgument(err):
		t.Errorf("error %v is not ErrInvalidArgument", err)
	}
}

func TestParseObjects(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"one pod", spec(""), ""},
		{"pod and class", spec("") + "---\n" + class, ""},
		{"class and pod", class + "---\n" + spec(""), ""},
		{"what the pod uses", spec("") + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}\n", ""},
		{"no pod", class, "f.yaml: no Pod in it"},
		{"empty", "", "no Pod in it"},
		{"two pods", spec("") + "---\n" + strings.Replace(spec(""), "name: p", "name: q", 1), `f.yaml:7: a second Pod; the first is "p"`},
		{"two classes", class + "---\n" + class + "---\n" + spec(""), "runtimeclass light"},
		{"deployment", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n", "deployment"},
		{"typo", spec("hostNetwrk: true"), `unknown field "spec.hostNetwrk"`},
		{"bad class", spec("") + "---\n" + strings.Replace(class, "handler: wasm", "handler: W", 1), "handler"},
		{"name", strings.Replace(spec(""), "name: p", "name: P_", 1), "metadata.name"},
		{"no image", strings.Replace(spec(""), "image: 'example.org/c:1'", "tty: true", 1), "spec.containers[0].image: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseObjects("f.yaml", []byte(tt.in))
			checkError(t, err, tt.want)
		})
	}
}

// A pod that names no restartPolicy runs once; one that names it is run as it says.
func TestRestartPolicy(t *testing.T) {
	for in, want := range map[string]corev1.RestartPolicy{
		"": corev1.RestartPolicyNever, "restartPolicy: Always": corev1.RestartPolicyAlways,
		"restartPolicy: OnFailure": corev1.RestartPolicyOnFailure, "restartPolicy: Never": corev1.RestartPolicyNever,
	} {
		s, err := parseObjects("f.yaml", []byte(spec(in)))
		if err != nil {
			t.Fatal(err)
		}
		e, found := desired.NewFixed(s.entries).Get(s.key)
		if !found || e.Pod() != s.pod || s.pod.Spec.RestartPolicy != want || len(s.pod.UID) != 36 {
			t.Errorf("%q: found %v, policy %s, UID %q; want %s", in, found, s.pod.Spec.RestartPolicy, s.pod.UID, want)
		}
	}
}

func TestSetHandler(t *testing.T) {
	have := []string{"", "runc", "wasm"}
	for _, tt := range []struct{ name, pod, override, class, handler, want string }{
		{name: "none"},
		{name: "of a class", pod: "runtimeClassName: light", class: "light", handler: "wasm"},
		{name: "before that of a class", pod: "runtimeClassName: light", override: "runc", class: "light", handler: "runc"},
		{name: "without a class", override: "runc", class: "runc", handler: "wasm"},
		{name: "before a handler's name", pod: "runtimeClassName: wasm", override: "runc", class: "runc", handler: "wasm"},
		{name: "unknown", override: "kata", want: `runtime handler "kata" is not configured in the server (handlers: runc, wasm)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parseObjects("f.yaml", []byte(spec(tt.pod)+"---\n"+class))
			if err != nil {
				t.Fatal(err)
			}
			err = s.setHandler(tt.override, have)
			checkError(t, err, tt.want)
			if err != nil || tt.class == "" {
				return
			}
			set := desired.NewFixed(s.entries)
			e, _ := set.Get(s.key)
			classes := set.Classes()
			if got := e.Pod().Spec.RuntimeClassName; got == nil || *got != tt.class || classes[0].Handler != tt.handler || classes[0].Overhead == nil {
				t.Errorf("class %v, of light %q", got, classes[0].Handler)
			}
		})
	}
}

func TestReadObjects(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pod, classes := write("pod.yaml", spec("")), write("classes.yaml", class)
	s, err := readObjects(Options{File: pod, RuntimeClassFiles: []string{classes}})
	if err != nil || len(desired.NewFixed(s.entries).Classes()) != 1 {
		t.Fatalf("%v, %v", s, err)
	}
	if s, err = readObjects(Options{File: "stdin", Reader: strings.NewReader(spec(""))}); err != nil || s.pod.Name != "p" {
		t.Errorf("stdin: %v", err)
	}
	_, err = readObjects(Options{File: write("both.yaml", spec("")+"---\n"+class), RuntimeClassFiles: []string{classes}})
	checkError(t, err, `RuntimeClass "light" is defined in the files of --runtimeclass too`)
	_, err = readObjects(Options{File: "long", Reader: strings.NewReader(strings.Repeat("#", manifest.MaxFile+1))})
	checkError(t, err, "is larger than")
	if _, err = readObjects(Options{File: filepath.Join(dir, "none")}); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("no file: %v", err)
	}
}

func unwrapped(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}
