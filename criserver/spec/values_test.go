package spec

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cap"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

func TestArgs(t *testing.T) {
	type list = []string
	for _, tt := range []struct {
		name                          string
		entrypoint, cmd, command, arg list
		module                        string
		want                          list
	}{
		{"image's", list{"/e"}, list{"c"}, nil, nil, "", list{"/e", "c"}},
		{"args replace cmd", list{"/e"}, list{"c"}, nil, list{"a"}, "", list{"/e", "a"}},
		{"command replaces both", list{"/e"}, list{"c"}, list{"/k"}, nil, "", list{"/k"}},
		{"command and args", list{"/e"}, list{"c"}, list{"/k"}, list{"a"}, "", list{"/k", "a"}},
		{"cmd alone", nil, list{"/c"}, nil, nil, "", list{"/c"}},
		{"args alone", nil, list{"/c"}, nil, list{"/a"}, "", list{"/a"}},
		{"artifact", nil, nil, nil, nil, "/m/hello.wasm", list{"hello.wasm"}},
		{"artifact with a name", nil, nil, nil, nil, "/m/1234 app.wasm", list{"app.wasm"}},
		{"artifact with a name and entrypoint", list{"/e"}, nil, nil, nil, "/m/1234 app.wasm", list{"e"}},
		{"artifact with cmd", nil, list{"c"}, nil, nil, "/m/hello.wasm", list{"hello.wasm", "c"}},
		{"artifact with entrypoint", list{"/app.wasm", "e"}, list{"c"}, nil, nil, "/m/1234", list{"app.wasm", "e", "c"}},
		{"artifact with args", list{"/app.wasm", "e"}, list{"c"}, nil, list{"a"}, "/m/1234", list{"app.wasm", "a"}},
		{"artifact with command", nil, list{"c"}, list{"k", "l"}, nil, "/m/hello.wasm", list{"hello.wasm", "k", "l"}},
		{"artifact with command and args", nil, nil, list{"k"}, list{"a"}, "/m/hello.wasm", list{"hello.wasm", "k", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := base()
			in.Image.Entrypoint, in.Image.Cmd = tt.entrypoint, tt.cmd
			in.Container.Command, in.Container.Args = tt.command, tt.arg
			in.Module.Path, in.Module.Name, _ = strings.Cut(tt.module, " ")
			got, err := in.args()
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// What the kubelet says of no ports is believed; where nobody says anything, the pod's are all
// there is.
func TestListeners(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		want        []annotation.Listener
	}{
		"its own":           {map[string]string{PortsAnnotation: `[{"name":"web","containerPort":9090}]`, restartsAnnotation: "0"}, []annotation.Listener{{Name: "web", Port: 9090}}},
		"none, kubelet":     {map[string]string{restartsAnnotation: "0"}, nil},
		"none, said so":     {map[string]string{PortsAnnotation: `[]`}, nil},
		"nothing is told":   {nil, []annotation.Listener{{Name: "8080", Port: 8080, Optional: true}}},
		"something else is": {map[string]string{"a": "b"}, []annotation.Listener{{Name: "8080", Port: 8080, Optional: true}}},
	} {
		in := base()
		in.Sandbox.PortMappings = []*runtime.PortMapping{{ContainerPort: 8080}, {ContainerPort: 53, Protocol: runtime.Protocol_UDP}}
		in.Container.Annotations = c.annotations
		if got, err := listeners(in.Container, in.Sandbox); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

func TestEnv(t *testing.T) {
	in := base()
	in.Container.Tty = true
	in.Image.Env = []string{"PATH=/image", "A=image", "B=image", "malformed", "=x", "TERM=dumb"}
	in.Container.Envs = []*runtime.KeyValue{{Key: "A", Value: []byte("cri")}, {Key: "HOSTNAME", Value: []byte("mine")}, {Key: "C", Value: []byte("a=b")}, {Key: "A", Value: []byte("again")}}
	got, err := in.env()
	want := []string{"PATH=/image", "HOME=/home/greeter", "HOSTNAME=mine", "TERM=dumb", "A=again", "B=image", "C=a=b"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestPrograms(t *testing.T) {
	inPath := []string{"/usr/local/sbin/e", "/usr/local/bin/e", "/usr/sbin/e", "/usr/bin/e", "/sbin/e", "/bin/e"}
	for _, c := range []struct {
		image  ocispec.ImageConfig
		config *runtime.ContainerConfig
		want   []string
	}{
		{ocispec.ImageConfig{Entrypoint: []string{"/e"}, Cmd: []string{"c"}}, &runtime.ContainerConfig{}, []string{"/e"}},
		{ocispec.ImageConfig{Cmd: []string{"/c"}}, &runtime.ContainerConfig{Args: []string{"/a"}}, []string{"/a"}},
		{ocispec.ImageConfig{Entrypoint: []string{"/e"}}, &runtime.ContainerConfig{Command: []string{"/k"}}, []string{"/k"}},
		{ocispec.ImageConfig{Entrypoint: []string{"./e"}, WorkingDir: "/w"}, &runtime.ContainerConfig{}, []string{"/w/e"}},
		{ocispec.ImageConfig{Entrypoint: []string{"../../e"}}, &runtime.ContainerConfig{WorkingDir: "/w"}, []string{"/e"}},
		{ocispec.ImageConfig{Entrypoint: []string{"e"}}, &runtime.ContainerConfig{WorkingDir: "/x"}, append(slices.Clone(inPath), "/x/e")},
		{ocispec.ImageConfig{Entrypoint: []string{"e"}, Env: []string{"PATH=/p:q"}}, &runtime.ContainerConfig{WorkingDir: "/x"}, []string{"/p/e", "/x/q/e", "/x/e"}},
		{ocispec.ImageConfig{}, &runtime.ContainerConfig{}, nil},
	} {
		in := base()
		in.Image, in.Container = c.image, c.config
		if got := Programs(in); !slices.Equal(got, c.want) {
			t.Errorf("%v %v: %q, want %q", c.image, c.config, got, c.want)
		}
	}
}

func TestCwd(t *testing.T) {
	for _, tt := range []struct{ image, container, want string }{
		{"", "", "/"}, {"/srv", "", "/srv"}, {"/srv", "/c", "/c"}, {"rel", "", "/rel"}, {"", "../../x", "/x"},
	} {
		in := base()
		in.Image.WorkingDir, in.Container.WorkingDir = tt.image, tt.container
		if got := in.cwd(); got != tt.want {
			t.Errorf("%q, %q: %q, want %q", tt.image, tt.container, got, tt.want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	host := []string{"CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN", "CAP_NET_ADMIN"}
	ordinary := []string{"CAP_CHOWN", "CAP_KILL"} // of the defaults, what the host has
	for _, tt := range []struct {
		name      string
		add, drop []string
		want      []string
	}{
		{"none", nil, nil, ordinary},
		{"add", []string{"SYS_ADMIN"}, nil, []string{"CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN"}},
		{"add with prefix, in lower case", []string{"cap_sys_admin"}, nil, []string{"CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN"}},
		{"add what is there", []string{"CHOWN"}, nil, ordinary},
		{"drop", nil, []string{"KILL"}, []string{"CAP_CHOWN"}},
		{"drop what is not there", nil, []string{"BPF"}, ordinary},
		{"add ALL", []string{"ALL"}, nil, []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"}},
		{"drop ALL", nil, []string{"all"}, nil},
		{"add ALL but one", []string{"ALL"}, []string{"SYS_ADMIN"}, []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_ADMIN"}},
		{"drop ALL but one", []string{"KILL"}, []string{"ALL"}, []string{"CAP_KILL"}},
		{"both ALL", []string{"ALL"}, []string{"ALL"}, nil},
		{"both one", []string{"SYS_ADMIN"}, []string{"SYS_ADMIN"}, ordinary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := base()
			in.Host.Capabilities = host
			in.sc().Capabilities = &runtime.Capability{AddCapabilities: tt.add, DropCapabilities: tt.drop}
			s, err := Container(in)
			if err != nil {
				t.Fatal(err)
			}
			c := s.Process.Capabilities
			if !slices.Equal(c.Bounding, tt.want) || !slices.Equal(c.Effective, tt.want) || !slices.Equal(c.Permitted, tt.want) || len(c.Inheritable)+len(c.Ambient) > 0 {
				t.Errorf("got %+v, want %v", c, tt.want)
			}
		})
	}
}

func TestSeccomp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Input)
		want   specs.LinuxSeccompAction // "" for no filter
	}{
		{"nothing said", func(*Input) {}, ""},
		{"unconfined", func(in *Input) {
			in.sc().Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined}
		}, ""},
		{"runtime default", func(in *Input) { in.sc().Seccomp = &runtime.SecurityProfile{} }, specs.ActErrno},
		{"deprecated default", func(in *Input) { in.sc().SeccompProfilePath = "runtime/default" }, specs.ActErrno},
		{"deprecated unconfined", func(in *Input) { in.sc().SeccompProfilePath = "unconfined" }, ""},
		{"new before deprecated", func(in *Input) {
			in.sc().SeccompProfilePath, in.sc().Seccomp = "runtime/default", &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined}
		}, ""},
		{"deprecated local", func(in *Input) {
			in.sc().SeccompProfilePath, in.Seccomp = "localhost//p", []byte(`{"defaultAction":"SCMP_ACT_LOG"}`)
		}, specs.ActLog},
		{"privileged", func(in *Input) { privilege(in); in.sc().Seccomp = &runtime.SecurityProfile{} }, ""},
		{"guest", func(in *Input) { in.Guest = true; in.sc().Seccomp = &runtime.SecurityProfile{} }, ""},
		{"kernel without", func(in *Input) { in.Host.NoSeccomp = true; in.sc().Seccomp = &runtime.SecurityProfile{} }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := base()
			tt.change(&in)
			s, err := Container(in)
			if err != nil {
				t.Fatal(err)
			}
			var got specs.LinuxSeccompAction
			if s.Linux.Seccomp != nil {
				got = s.Linux.Seccomp.DefaultAction
			}
			if got != tt.want {
				t.Errorf("default action %q, want %q", got, tt.want)
			}
		})
	}
}

// The default profile opens system calls for capabilities, so it must be made after them.
func TestSeccompKnowsCapabilities(t *testing.T) {
	allows := func(add ...string) bool {
		in := base()
		in.sc().Seccomp = &runtime.SecurityProfile{}
		in.sc().Capabilities = &runtime.Capability{AddCapabilities: add}
		s, err := Container(in)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(s.Linux.Seccomp.Syscalls, func(c specs.LinuxSyscall) bool {
			return c.Action == specs.ActAllow && slices.Contains(c.Names, "sethostname")
		})
	}
	if allows() || !allows("SYS_ADMIN") {
		t.Error("sethostname should be allowed with CAP_SYS_ADMIN only")
	}
}

func TestSeccompFile(t *testing.T) {
	in := base()
	if path, err := SeccompFile(in.Container); path != "" || err != nil {
		t.Errorf("%q, %v", path, err)
	}
	in.sc().Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: "/p"}
	if path, err := SeccompFile(in.Container); path != "/p" || err != nil {
		t.Errorf("%q, %v", path, err)
	}
	in.sc().Privileged = true
	if path, err := SeccompFile(in.Container); path != "" || err != nil {
		t.Errorf("privileged: %q, %v", path, err)
	}
}

func TestAppArmor(t *testing.T) {
	for _, tt := range []struct {
		name, deprecated string
		profile          *runtime.SecurityProfile
		off, privileged  bool
		guest            bool
		want             string
	}{
		{name: "nothing said", want: "default"},
		{name: "runtime default", profile: &runtime.SecurityProfile{}, want: "default"},
		{name: "unconfined", profile: &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined}},
		{name: "deprecated unconfined", deprecated: "unconfined"},
		{name: "local", deprecated: "localhost/mine", want: "mine"},
		{name: "off", off: true},
		{name: "guest", guest: true},
		{name: "guest with the default, off", profile: &runtime.SecurityProfile{}, off: true, guest: true},
		{name: "privileged", privileged: true},
		{name: "privileged with the default", profile: &runtime.SecurityProfile{}, privileged: true},
		{name: "privileged and local", deprecated: "localhost/mine", privileged: true, want: "mine"},
		{name: "local with a prefix", profile: &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: "localhost/mine"}, want: "mine"},
		{name: "off and unconfined", profile: &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined}, off: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := base()
			if tt.privileged {
				privilege(&in)
			}
			in.Host.AppArmor, in.Host.AppArmorDefault = !tt.off, "default"
			in.Guest = tt.guest
			in.sc().Apparmor, in.sc().ApparmorProfile = tt.profile, tt.deprecated
			s, err := Container(in)
			if err != nil || s.Process.ApparmorProfile != tt.want {
				t.Errorf("%q, %v; want %q", s.Process.ApparmorProfile, err, tt.want)
			}
		})
	}
}

func TestDefaultAppArmor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Input)
		want   bool
	}{
		{"nothing said", func(*Input) {}, true},
		{"default", func(in *Input) { in.sc().Apparmor = &runtime.SecurityProfile{} }, true},
		{"deprecated default", func(in *Input) { in.sc().ApparmorProfile = "runtime/default" }, true},
		{"unconfined", func(in *Input) { in.sc().ApparmorProfile = "unconfined" }, false},
		{"local", func(in *Input) { in.sc().ApparmorProfile = "localhost/x" }, false},
		{"privileged", privilege, false},
		{"unknown", func(in *Input) { in.sc().ApparmorProfile = "x" }, false},
	} {
		in := base()
		tt.change(&in)
		if got := DefaultAppArmor(in.Container); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestResources(t *testing.T) {
	n := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	for _, tt := range []struct {
		name        string
		memory, sw  int64
		accounting  bool
		limit, swap int64
	}{
		{"none", 0, 0, true, 0, 0},
		{"no swap", 100, 0, true, 100, 100},
		{"no swap accounting", 100, 0, false, 100, 0},
		{"with swap", 100, 150, true, 100, 150},
		{"swap asked in vain", 100, 150, false, 100, 0},
		{"unlimited swap", 100, -1, true, 100, -1},
	} {
		r, err := Resources(&runtime.LinuxContainerResources{MemoryLimitInBytes: tt.memory, MemorySwapLimitInBytes: tt.sw}, Host{SwapAccounting: tt.accounting})
		if err != nil {
			t.Fatal(err)
		}
		m := r.Memory
		if m == nil {
			m = &specs.LinuxMemory{}
		}
		if n(m.Limit) != tt.limit || n(m.Swap) != tt.swap {
			t.Errorf("%s: limit %d swap %d", tt.name, n(m.Limit), n(m.Swap))
		}
	}
	r, err := Resources(&runtime.LinuxContainerResources{HugepageLimits: []*runtime.HugepageLimit{{PageSize: "2MB"}}}, Host{})
	if err != nil || len(r.HugepageLimits) != 0 || r.CPU != nil || r.Memory != nil {
		t.Errorf("%+v, %v", r, err)
	}
	for _, tt := range []struct{ wish, min, want int }{{-998, -1000, -998}, {-998, 0, 0}, {500, 0, 500}, {5000, 0, 1000}, {-5000, -1000, -1000}} {
		if got := OOMScoreAdj(tt.wish, Host{MinOOMScoreAdj: tt.min}); got != tt.want {
			t.Errorf("OOMScoreAdj(%d, %d) = %d, want %d", tt.wish, tt.min, got, tt.want)
		}
	}
}

func TestVolumes(t *testing.T) {
	got := Volumes(map[string]struct{}{"/b": {}, "/a/": {}, "/": {}, "/taken": {}, "rel": {}},
		&runtime.ContainerConfig{Mounts: []*runtime.Mount{{ContainerPath: "/taken/"}}})
	if want := []string{"/a", "/b", "/rel"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Translating must not change what it is given: the server keeps it.
func TestInputIsLeftAlone(t *testing.T) {
	in := base()
	in.Container.Command = append(make([]string, 0, 8), "/k")
	in.Container.Args = []string{"a"}
	for range 2 {
		s, err := Container(in)
		if err != nil || !slices.Equal(s.Process.Args, []string{"/k", "a"}) {
			t.Fatalf("%v, %v", s.Process.Args, err)
		}
		s.Process.Args[0] = "changed"
		s.Process.Capabilities.Bounding[0] = "changed"
		s.Linux.MaskedPaths[0] = "changed"
	}
	if defaultMasked[0] == "changed" || defaultCapabilities[0] == "changed" || cap.Known()[0] == "changed" {
		t.Error("defaults were changed")
	}
}

// TestOptimizeGo has the container's word count before the pod's, and that before the
// configuration's.
func TestOptimizeGo(t *testing.T) {
	for _, c := range []struct {
		container, pod string
		configured     bool
		want           string
	}{
		{}, {configured: true, want: "true"}, {pod: "true", want: "true"}, {pod: "false", configured: true},
		{container: "true", pod: "false", want: "true"}, {container: "false", pod: "true", configured: true},
	} {
		in := base()
		in.Handler, in.OptimizeGo = runtimeclass.WASM, c.configured
		in.Container.Annotations, in.Sandbox.Annotations = map[string]string{}, map[string]string{}
		if c.container != "" {
			in.Container.Annotations[annotation.OptimizeGo] = c.container
		}
		if c.pod != "" {
			in.Sandbox.Annotations[annotation.OptimizeGo] = c.pod
		}
		s, err := Container(in)
		if err != nil || s.Annotations[annotation.OptimizeGo] != c.want {
			t.Errorf("%+v: %q, %v", c, s.Annotations[annotation.OptimizeGo], err)
		}
	}
}

// TestHTTPAnnotations are passed on for guests, and refused by their names.
func TestHTTPAnnotations(t *testing.T) {
	in := base()
	in.Handler = runtimeclass.WASM
	in.Sandbox.Annotations = map[string]string{annotation.HTTPTimeout: "5s", annotation.HTTPInstances: "one"}
	in.Container.Annotations = map[string]string{annotation.HTTPTimeout: "1m"}
	s, err := Container(in)
	if err != nil || s.Annotations[annotation.HTTPTimeout] != "1m0s" || s.Annotations[annotation.HTTPInstances] != "one" {
		t.Errorf("%v, %v", s.Annotations, err)
	}
	in.Container.Annotations[annotation.HTTPPort] = "70000"
	if _, err := Container(in); err == nil || !strings.Contains(err.Error(), "annotations["+annotation.HTTPPort+"]") {
		t.Errorf("error %v", err)
	}
}
