package run

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden is a plan as it stands in a golden file. Environment variables stand
// apart, for the CRI's are bytes.
type golden struct {
	Handler string
	Grace   string
	Dirs    []string
	Sandbox *runtime.PodSandboxConfig
	Init    []goldenContainer `json:",omitempty"`
	Main    []goldenContainer
}

type goldenContainer struct {
	Policy           string
	Sidecar, NonRoot bool     `json:",omitempty"`
	Env              []string `json:",omitempty"`
	Config           *runtime.ContainerConfig
}

func goldenOf(p *plan) golden {
	g := golden{Handler: p.handler, Grace: p.grace.String(), Sandbox: p.sandbox}
	for _, d := range p.dirs {
		g.Dirs = append(g.Dirs, strings.TrimSpace(d.mode.String()+" "+d.path))
	}
	list := func(in []*planned) (out []goldenContainer) {
		for _, c := range in {
			gc := goldenContainer{Policy: string(c.policy), Sidecar: c.sidecar, NonRoot: c.nonRoot, Config: c.config}
			for _, e := range c.config.Envs {
				gc.Env = append(gc.Env, e.GetKey()+"="+string(e.GetValue()))
			}
			c.config.Envs = nil
			out = append(out, gc)
		}
		return out
	}
	g.Init, g.Main = list(p.init), list(p.main)
	return g
}

func TestPlanGolden(t *testing.T) {
	for _, name := range []string{"full", "host"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			m, err := parseManifest(name+".yaml", data)
			if err != nil {
				t.Fatal(err)
			}
			handler, err := m.handler("", []string{"", "runc", "wasm"})
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPlan(m, planOptions{Handler: handler, Dir: "/run/d", UID: "the-uid", Memory: 4 << 30})
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(goldenOf(p), "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			file := filepath.Join("testdata", name+".golden.json")
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
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, pod, container, want string }{
		{"grace", "terminationGracePeriodSeconds: -1", "", "terminationGracePeriodSeconds: -1 is negative"},
		{"volume name", "volumes: [{name: A}]", "", "spec.volumes[0].name: "},
		{"volume twice", "volumes: [{name: a}, {name: a}]", "", `spec.volumes[1].name: "a" is the name of another`},
		{"two sources", "volumes: [{name: a, emptyDir: {}, hostPath: {path: /a}}]", "", "spec.volumes[0]: has more than one source"},
		{"image and another", "volumes: [{name: a, emptyDir: {}, image: {reference: r}}]", "", "spec.volumes[0]: has more than one source"},
		{"no image", "volumes: [{name: a, image: {}}]", "", "spec.volumes[0].image.reference: is empty"},
		{"pull policy", "volumes: [{name: a, image: {reference: r, pullPolicy: Now}}]", "", "spec.volumes[0].image.pullPolicy: \"Now\" is not known"},
		{"sub-path of a folder", "volumes: [{name: a}]", "volumeMounts: [{name: a, mountPath: /a, subPath: b}]", "volumeMounts[0].subPath: is supported"},
		{"relative path", "volumes: [{name: a, hostPath: {path: a}}]", "", "spec.volumes[0].hostPath.path: "},
		{"path climbs", "volumes: [{name: a, hostPath: {path: /a/../b}}]", "", "spec.volumes[0].hostPath.path: "},
		{"no directory", "volumes: [{name: a, hostPath: {path: " + dir + "/none, type: Directory}}]", "", "no such file"},
		{"not a file", "volumes: [{name: a, hostPath: {path: " + dir + ", type: File}}]", "", "is not a file"},
		{"not a socket", "volumes: [{name: a, hostPath: {path: " + dir + ", type: Socket}}]", "", "is not a socket"},
		{"path type", "volumes: [{name: a, hostPath: {path: /a, type: FileOrCreate}}]", "", "hostPath.type: FileOrCreate is not supported"},
		{"no such volume", "", "volumeMounts: [{name: a, mountPath: /a}]", `spec.containers[0].volumeMounts[0].name: the pod has no volume "a"`},
		{"mount path", "volumes: [{name: a}]", "volumeMounts: [{name: a, mountPath: a}]", "volumeMounts[0].mountPath: "},
		{"propagation", "volumes: [{name: a}]", "volumeMounts: [{name: a, mountPath: /a, mountPropagation: Up}]", "volumeMounts[0].mountPropagation: "},
		{"recursive", "volumes: [{name: a}]", "volumeMounts: [{name: a, mountPath: /a, recursiveReadOnly: IfPossible}]", "recursiveReadOnly: IfPossible is not supported"},
		{"profile", "", "securityContext: {seccompProfile: {type: Strict}}", `spec.containers[0].securityContext.seccompProfile.type: "Strict"`},
		{"signal", "", "lifecycle: {stopSignal: SIGFOO}", "spec.containers[0].lifecycle.stopSignal: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := parseManifest("f.yaml", []byte(spec(tt.pod, tt.container)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = newPlan(m, planOptions{Dir: dir, UID: "u"})
			checkError(t, err, tt.want)
		})
	}
}

func TestMakeDirs(t *testing.T) {
	root := t.TempDir()
	p := &plan{dirs: []dir{{path: filepath.Join(root, "a/b"), mode: 0o777}, {path: filepath.Join(root, "c"), mode: 0o777 | os.ModeSetgid, gid: os.Getegid()}}}
	for range 2 { // again changes nothing
		if err := p.makeDirs(); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range p.dirs {
		info, err := os.Stat(d.path)
		if err != nil || info.Mode() != d.mode|os.ModeDir {
			t.Errorf("%s: %v, %v", d.path, info.Mode(), err)
		}
	}
	if err := removeDir(root); err != nil {
		t.Fatal(err)
	}
}

func TestHostname(t *testing.T) {
	for _, tt := range []struct{ name, hostname, want string }{
		{"p", "", "p"}, {"a.b", "", "a.b"}, {"p", "h", "h"},
		{strings.Repeat("a", 62) + "-b", "", strings.Repeat("a", 62)},
		{strings.Repeat("a", 61) + ".-b", "", strings.Repeat("a", 61)},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tt.name}, Spec: corev1.PodSpec{Hostname: tt.hostname}}
		if got := hostname(pod); got != tt.want {
			t.Errorf("%s, %s: %s, want %s", tt.name, tt.hostname, got, tt.want)
		}
	}
}

func TestCheckNonRoot(t *testing.T) {
	uid := func(n int64) *runtime.Int64Value { return &runtime.Int64Value{Value: n} }
	for _, tt := range []struct {
		name    string
		nonRoot bool
		user    *runtime.Int64Value
		image   *runtime.Image
		want    string
	}{
		{"not asked", false, nil, &runtime.Image{}, ""},
		{"pod's user", true, uid(1), &runtime.Image{Uid: uid(0)}, ""},
		{"pod's root", true, uid(0), &runtime.Image{Uid: uid(1)}, "runAsUser is 0"},
		{"image's user", true, nil, &runtime.Image{Uid: uid(1)}, ""},
		{"image's root", true, nil, &runtime.Image{Uid: uid(0)}, "the image runs as root"},
		{"image without user", true, nil, &runtime.Image{}, "the image runs as root"},
		{"image's name", true, nil, &runtime.Image{Username: "web"}, `"web" is a name`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &planned{name: "c", nonRoot: tt.nonRoot, config: &runtime.ContainerConfig{
				Linux: &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{RunAsUser: tt.user}},
			}}
			checkError(t, checkNonRoot(c, tt.image), tt.want)
		})
	}
}

func TestNameUser(t *testing.T) {
	value := func(n int64) *runtime.Int64Value { return &runtime.Int64Value{Value: n} }
	for _, tt := range []struct {
		name        string
		user, group *runtime.Int64Value
		image       *runtime.Image
		wantUser    *runtime.Int64Value
		wantName    string
	}{
		{"nothing", nil, nil, &runtime.Image{Uid: value(5)}, nil, ""},
		{"both", value(1), value(2), &runtime.Image{Uid: value(5)}, value(1), ""},
		{"group, image's id", nil, value(2), &runtime.Image{Uid: value(5)}, value(5), ""},
		{"group, image's name", nil, value(2), &runtime.Image{Username: "web"}, nil, "web"},
		{"group, image without user", nil, value(2), &runtime.Image{}, value(0), ""},
	} {
		sc := &runtime.LinuxContainerSecurityContext{RunAsUser: tt.user, RunAsGroup: tt.group}
		nameUser(&planned{config: &runtime.ContainerConfig{Linux: &runtime.LinuxContainerConfig{SecurityContext: sc}}}, tt.image)
		if (sc.RunAsUser == nil) != (tt.wantUser == nil) || sc.RunAsUser.GetValue() != tt.wantUser.GetValue() || sc.RunAsUsername != tt.wantName {
			t.Errorf("%s: %v %q", tt.name, sc.RunAsUser, sc.RunAsUsername)
		}
	}
}

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "E": ""}
	for in, want := range map[string]string{
		"": "", "x": "x", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(A)", "$(E)": "", "$(NO)": "$(NO)",
		"$$(A)": "$(A)", "$$$(A)": "$1", "$": "$", "$$": "$", "a$": "a$", "$(A": "$(A", "$x": "$x", "$()": "$()", "$(A)$": "1$",
	} {
		if got := expand(in, vars); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestFirstCode(t *testing.T) {
	ended := func(at int64, code int32) *container {
		return &container{planned: &planned{}, ended: &runtime.ContainerStatus{FinishedAt: at, ExitCode: code}}
	}
	for _, tt := range []struct {
		list []*container
		want int
	}{
		{nil, 0}, {[]*container{ended(1, 0)}, 0}, {[]*container{ended(2, 7), ended(1, 3)}, 3}, {[]*container{ended(2, 7), ended(1, 0)}, 7},
	} {
		if got := firstCode(tt.list); got != tt.want {
			t.Errorf("%d, want %d", got, tt.want)
		}
	}
}
