package translate

import (
	"errors"
	"fmt"
	"reflect"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func envInput(pod *corev1.Pod) Input {
	in := input(pod)
	in.Objects = objects{
		configMaps: map[string]map[string]string{
			"default/one":   {"A": "a1", "B": "b1", "text": "$(A)"},
			"default/two":   {"A": "a2", "C": "c2"},
			"default/names": {"a.b": "dot", "1x": "digit", "A=B": "equals", "é": "accent", "": "empty"},
			"other/far":     {"A": "far"},
		},
		secrets: map[string]map[string]string{"default/login": {"user": "root", "bytes": "\xff\x00"}},
	}
	return in
}

func texts(envs []*runtime.KeyValue) string {
	var list []string
	for _, e := range envs {
		list = append(list, e.GetKey()+"="+string(e.GetValue()))
	}
	return strings.Join(list, " ")
}

func TestEnvironment(t *testing.T) {
	for _, tt := range []struct{ name, env, want string }{
		{"EV1: env after envFrom", "envFrom: [{configMapRef: {name: one}}, {configMapRef: {name: two}}], env: [{name: B, value: own}]", "A=a2 B=own text=$(A) C=c2"},
		{"EV1: the later of one list", "env: [{name: A, value: '1'}, {name: B, value: x}, {name: A, value: '2'}]", "A=2 B=x"},
		{"EV2: references to those before", "env: [{name: X, value: $(V)}, {name: V, value: v}, {name: Z, value: $(V)$(X)$$(V)}]", "X=$(V) V=v Z=v$(V)$(V)"},
		{"EV2: references to envFrom", "envFrom: [{configMapRef: {name: one}}], env: [{name: X, value: <$(A)>}]", "A=a1 B=b1 text=$(A) X=<a1>"},
		{"EV2: to itself", "env: [{name: P, value: a}, {name: P, value: '$(P):b'}]", "P=a:b"},
		{"EV3: prefix", "envFrom: [{prefix: P_, configMapRef: {name: two}}, {prefix: S., secretRef: {name: login}}]", "P_A=a2 P_C=c2 S.bytes=\xff\x00 S.user=root"},
		{"EV3: names", "envFrom: [{configMapRef: {name: names}}]", "1x=digit a.b=dot"},
		{"EV3: a prefix makes a name of an empty key", "envFrom: [{prefix: p, configMapRef: {name: names}}]", "p=empty p1x=digit pa.b=dot"},
		{"EV3: optional", "envFrom: [{configMapRef: {name: none, optional: true}}, {secretRef: {name: none, optional: true}}]", ""},
		{"EV4: keys", "env: [{name: A, valueFrom: {configMapKeyRef: {name: one, key: A}}}, {name: B, valueFrom: {secretKeyRef: {name: login, key: user}}}]", "A=a1 B=root"},
		{"EV4: what they hold is not expanded", "env: [{name: A, value: x}, {name: T, valueFrom: {configMapKeyRef: {name: one, key: text}}}]", "A=x T=$(A)"},
		{"EV4: optional objects and keys are not set", "env: [{name: A, valueFrom: {configMapKeyRef: {name: none, key: A, optional: true}}}, " +
			"{name: B, valueFrom: {configMapKeyRef: {name: one, key: none, optional: true}}}, {name: C, valueFrom: {secretKeyRef: {name: none, key: A, optional: true}}}, " +
			"{name: D, valueFrom: {secretKeyRef: {name: login, key: none, optional: true}}}]", ""},
		{"EV4: one that is not set leaves what is", "envFrom: [{configMapRef: {name: two}}], env: [{name: A, valueFrom: {configMapKeyRef: {name: one, key: none, optional: true}}}]", "A=a2 C=c2"},
		{"a value counts before its source", "env: [{name: A, value: own, valueFrom: {configMapKeyRef: {name: none, key: k}}}]", "A=own"},
		{"EV8: no Services", "", ""},
		{"empty", "env: [{name: A}, {name: B, value: ''}]", "A= B="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := envInput(specPod(t, "enableServiceLinks: true", tt.env))
			got, err := Environment(in, &in.Pod.Spec.Containers[0])
			if err != nil || texts(got) != tt.want {
				t.Errorf("%q, %v; want %q", texts(got), err, tt.want)
			}
		})
	}
}

func TestEnvironmentRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, env, want string
		class           func(error) bool
	}{
		{"EV4: ConfigMap", "env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: k}}}]", `configmap "x" not found`, errdefs.IsNotFound},
		{"EV4: of another namespace", "envFrom: [{configMapRef: {name: far}}]", `configmap "far" not found`, errdefs.IsNotFound},
		{"EV4: Secret", "env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k}}}]", `secret "x" not found`, errdefs.IsNotFound},
		{"EV3: Secret", "envFrom: [{secretRef: {name: x, optional: false}}]", `secret "x" not found`, errdefs.IsNotFound},
		{"EV4: ConfigMap's key", "env: [{name: A, valueFrom: {configMapKeyRef: {name: one, key: k}}}]", "couldn't find key k in ConfigMap default/one", errdefs.IsNotFound},
		{"EV4: Secret's key", "env: [{name: A, valueFrom: {secretKeyRef: {name: login, key: k}}}]", "couldn't find key k in Secret default/login", errdefs.IsNotFound},
		{"EV7", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]",
			"env[0].valueFrom.fileKeyRef: is not done yet; mount the volume and read the file instead", errdefs.IsNotImplemented},
		{"EV5", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.phase}}}]", "fieldRef.fieldPath: field label not supported: status.phase: invalid argument", errdefs.IsInvalidArgument},
		{"EV6", "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]",
			"resourceFieldRef.resource: unsupported container resource : limits.gpu: invalid argument", errdefs.IsInvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := envInput(specPod(t, "", tt.env))
			c := &in.Pod.Spec.Containers[0]
			_, err := Environment(in, c)
			checkText(t, err, tt.want, tt.class)
			_, whole := Container(in, c, ContainerInput{Image: &runtime.Image{}})
			for _, err := range []error{err, whole} {
				var config *ConfigError
				if !errors.As(err, &config) || config.Reason != "CreateContainerConfigError" || err.Error() != tt.want {
					t.Errorf("%v is not the waiting reason", err)
				}
			}
		})
	}
	in := envInput(specPod(t, "", "envFrom: [{secretRef: {name: x}}]"))
	in.Objects = nil
	_, err := Environment(in, &in.Pod.Spec.Containers[0])
	checkText(t, err, `secret "x" not found`, errdefs.IsNotFound)
}

// EV3
func TestEnvironmentNotes(t *testing.T) {
	in := envInput(specPod(t, "", "envFrom: [{configMapRef: {name: one}}, {configMapRef: {name: names}}]"))
	want := []Note{{"InvalidEnvironmentVariableNames",
		"Keys [, A=B, é] from the EnvFrom configMap default/names were skipped since they are considered invalid environment variable names."}}
	if got := EnvironmentNotes(in, &in.Pod.Spec.Containers[0]); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A manifest of a few lines must not make gigabytes.
func TestEnvironmentIsBounded(t *testing.T) {
	var list []string
	for i := range 40 {
		list = append(list, fmt.Sprintf("{name: V%d, value: '$(V%d)$(V%d)'}", i+1, i, i))
	}
	in := envInput(specPod(t, "", "env: [{name: V0, value: 0123456789}, "+strings.Join(list, ", ")+"]"))
	_, err := Environment(in, &in.Pod.Spec.Containers[0])
	checkText(t, err, "env[14].value: it has more than 131071 bytes with its references replaced: invalid argument", errdefs.IsInvalidArgument)

	big := strings.Repeat("x", 100<<10)
	for _, tt := range []struct {
		env, want string
	}{
		{strings.Repeat(", {name: N%d, value: $(V0)}", 59), ""},
		{strings.Repeat(", {name: N%d, value: $(V0)}", 62), "env[61]: the variables have more than 6291456 bytes together: invalid argument"},
	} {
		var numbers []any
		for i := range strings.Count(tt.env, "%d") {
			numbers = append(numbers, i)
		}
		in := envInput(specPod(t, "", "env: [{name: V0, value: "+big+"}"+fmt.Sprintf(tt.env, numbers...)+"]"))
		_, err := Environment(in, &in.Pod.Spec.Containers[0])
		checkText(t, err, tt.want, errdefs.IsInvalidArgument)
	}

	for field, want := range map[string]string{
		"command": "command[60]: variables and arguments have more than 6291456 bytes together: invalid argument",
		"args":    "args[60]: variables and arguments have more than 6291456 bytes together: invalid argument",
	} {
		in := envInput(specPod(t, "", "env: [{name: V0, value: "+big+"}], "+field+": ["+strings.Repeat("$(V0), ", 62)+"]"))
		_, err := Container(in, &in.Pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
		checkText(t, err, want, errdefs.IsInvalidArgument)
	}
	in = envInput(specPod(t, "", "env: [{name: V0, value: "+big+"}], args: [a, $(V0)$(V0)]"))
	_, err = Container(in, &in.Pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
	checkText(t, err, "args[1]: value: it has more than 131071 bytes with its references replaced: invalid argument", errdefs.IsInvalidArgument)
}

// One text with many references is given up as soon as it is too long.
func TestExpandStopsEarly(t *testing.T) {
	text, vars := strings.Repeat("$(V)", 3000), map[string]string{"V": strings.Repeat("x", 100<<10)}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	_, _, err := Expand(text, vars)
	goruntime.ReadMemStats(&after)
	checkText(t, err, "value: it has more than 131071 bytes with its references replaced: invalid argument", errdefs.IsInvalidArgument)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
}

// EV2
func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "E": "", "x y": "spaced"}
	for in, want := range map[string]string{
		"": "", "x": "x", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(A)", "$(E)": "", "$(NO)": "$(NO)",
		"$$(A)": "$(A)", "$$$(A)": "$1", "$$$$(A)": "$$(A)", "$": "$", "$$": "$", "a$": "a$", "$(A": "$(A", "$x": "$x", "$()": "$()", "$(A)$": "1$",
		"$(A$(A)": "$(A$(A)", "$(x y)": "spaced", "${A}": "${A}", "$(NO)$(A)": "$(NO)1", "($)$(A)": "($)1",
	} {
		if got, _, err := Expand(in, vars); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	_, missing, err := Expand("$(NO)$(A)$(NEITHER)$$(SAFE)$(NO)", vars)
	if fmt.Sprint(missing) != "[NO NEITHER NO]" || err != nil {
		t.Errorf("missing %q, %v", missing, err)
	}
}
