package annotation

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/stdio"
)

func TestFactsStayWhatTheyAre(t *testing.T) {
	all := Facts{
		SandboxID: "pod", HandlerType: Wasm, Program: Wasm,
		Module:     Module{Path: "/m.wasm", Digest: "sha256:1", Name: "m.wasm"},
		Listeners:  []Listener{{Name: "http", Port: 65535}, {Name: "own", Address: "::1", Port: 1, Optional: true}},
		HTTP:       HTTP{Port: 80, Kept: true, Timeout: -1, Memory: 1 << 20, Body: 3, Concurrency: 4, NoAccessLog: true},
		OptimizeGo: true, StopWait: true, StopSignal: "SIGUSR2", LogLimits: stdio.Limits{Rate: 1, Burst: 2, Size: 3}, OneStep: true, AwaitAttach: true,
	}
	for _, f := range []Facts{all, {}, {Sandbox: true, SandboxID: "pod"}} {
		if got, err := Read(f.Annotations()); err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%+v became %+v, %v", f, got, err)
		}
	}
	for i := range reflect.TypeFor[Facts]().NumField() {
		if f := reflect.TypeFor[Facts]().Field(i); f.Name != "Sandbox" && reflect.ValueOf(all).Field(i).IsZero() {
			t.Errorf("%s is not tried", f.Name)
		}
	}
}

// TestAnnotationsOfAPodsAuthor has nothing of them lead to a file of the host or past the engines.
func TestAnnotationsOfAPodsAuthor(t *testing.T) {
	annotations := map[string]string{
		ContainerType: "sandbox", SandboxID: "pod", StopSignal: "SIGUSR2", Listen: `[{"name":"a","port":1}]`, OptimizeGo: "true", StopWait: "true",
		HandlerType: "oci", Program: "wasm", ModulePath: "/etc/shadow", ModuleDigest: "x", ModuleName: "y", LogLimits: "nonsense", OneStep: "true", AwaitAttach: "true", HTTPPort: "81",
	}
	want := Facts{Sandbox: true, SandboxID: "pod", StopSignal: "SIGUSR2", Listeners: []Listener{{Name: "a", Port: 1}}, OptimizeGo: true, StopWait: true, HTTP: HTTP{Port: 81}}
	if got, err := ReadOfPod(annotations); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	annotations[OptimizeGo] = "1"
	if _, err := ReadOfPod(annotations); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("error %v", err)
	}
}

func TestNothingIsSaidOfWhatIsNotKnown(t *testing.T) {
	got := Facts{}.Annotations()
	if len(got) != 1 || got[ContainerType] != "container" {
		t.Errorf("got %v", got)
	}
	if f, err := Read(nil); err != nil || !reflect.DeepEqual(f, Facts{}) {
		t.Errorf("no annotations are %+v, %v", f, err)
	}
}

func TestAnnotationsThatCannotBeRead(t *testing.T) {
	for name, values := range map[string][]string{
		ModulePath: {"m.wasm", "../m.wasm"},
		Listen:     {"{", `[{"port":65536}]`, `[{"port":-1}]`, `{"port":1}`},
		OptimizeGo: {"1", "True"},
		LogLimits:  {"none that there are", "rate=-1"},
	} {
		for _, value := range values {
			f, err := Read(map[string]string{name: value})
			if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "annotation "+name+": ") || !reflect.DeepEqual(f, Facts{}) {
				t.Errorf("%s %q: %+v, %v", name, value, f, err)
			}
		}
	}
}
