package translate

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func uid(n int64) *runtime.Int64Value { return &runtime.Int64Value{Value: n} }

// SE2, in the kubelet's words.
func TestCheckNonRoot(t *testing.T) {
	const podYes, pod1, pod0 = "securityContext: {runAsNonRoot: true}", "securityContext: {runAsNonRoot: true, runAsUser: 1}", "securityContext: {runAsNonRoot: true, runAsUser: 0}"
	const at = ` (pod: "web_default(u-1)", container: app)`
	for _, tt := range []struct {
		name, spec, container string
		image                 *runtime.Image
		want                  string
	}{
		{"not asked", "", "", &runtime.Image{}, ""},
		{"refused by the container", podYes, "securityContext: {runAsNonRoot: false}", &runtime.Image{}, ""},
		{"pod's user", pod1, "", &runtime.Image{Uid: uid(0)}, ""},
		{"pod's root", pod0, "", &runtime.Image{Uid: uid(1)}, "container's runAsUser breaks non-root policy" + at},
		{"container's root", pod1, "securityContext: {runAsUser: 0}", &runtime.Image{Uid: uid(1)}, "container's runAsUser breaks non-root policy" + at},
		{"container's user", pod0, "securityContext: {runAsUser: 5}", &runtime.Image{}, ""},
		{"asked by the container", "", "securityContext: {runAsNonRoot: true}", &runtime.Image{Uid: uid(0)}, "container has runAsNonRoot and image will run as root" + at},
		{"image's user", podYes, "", &runtime.Image{Uid: uid(1)}, ""},
		{"image's root", podYes, "", &runtime.Image{Uid: uid(0)}, "container has runAsNonRoot and image will run as root" + at},
		{"image without user", podYes, "", &runtime.Image{}, "container has runAsNonRoot and image will run as root" + at},
		{"image's name", podYes, "", &runtime.Image{Username: "app"}, "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root" + at},
		{"a name with a percent sign", podYes, "", &runtime.Image{Username: "%d"}, "container has runAsNonRoot and image has non-numeric user (%d), cannot verify user is non-root" + at},
		{"image's user that is none", podYes, "", &runtime.Image{Uid: uid(-1)},
			"container has runAsNonRoot and image has an invalid user id (-1). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive" + at},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, tt.container))
			c := &in.Pod.Spec.Containers[0]
			checkText(t, CheckNonRoot(in.Pod, c, tt.image), tt.want, errdefs.IsFailedPrecondition)
			_, err := Container(in, c, ContainerInput{Image: tt.image})
			checkText(t, err, tt.want, errdefs.IsFailedPrecondition)
		})
	}
}

// SE1
func TestUsersAndGroups(t *testing.T) {
	const merge, strict = runtime.SupplementalGroupsPolicy_Merge, runtime.SupplementalGroupsPolicy_Strict
	for _, tt := range []struct {
		name, spec, container string
		image                 *runtime.Image
		user, group           *runtime.Int64Value
		username, groups      string
		policy                runtime.SupplementalGroupsPolicy
		sandbox               string // user and group
	}{
		{"image's id", "", "", &runtime.Image{Uid: uid(5)}, uid(5), nil, "", "[]", merge, "<nil> <nil>"},
		{"image's name", "", "", &runtime.Image{Username: "web"}, nil, nil, "web", "[]", merge, "<nil> <nil>"},
		{"image without user", "", "", &runtime.Image{}, uid(0), nil, "", "[]", merge, "<nil> <nil>"},
		{"a group and the image's id", "securityContext: {runAsGroup: 2}", "", &runtime.Image{Uid: uid(5)}, uid(5), uid(2), "", "[]", merge, "<nil> <nil>"},
		{"a group and the image's name", "", "securityContext: {runAsGroup: 2}", &runtime.Image{Username: "web"}, nil, uid(2), "web", "[]", merge, "<nil> <nil>"},
		{"a group and an image without user", "", "securityContext: {runAsGroup: 2}", &runtime.Image{}, uid(0), uid(2), "", "[]", merge, "<nil> <nil>"},
		{"pod's", "securityContext: {runAsUser: 1, runAsGroup: 2, fsGroup: 3, supplementalGroups: [4, 5]}", "", &runtime.Image{Username: "web"}, uid(1), uid(2), "", "[3 4 5]", merge, "1 2"},
		{"container's before the pod's", "securityContext: {runAsUser: 1, runAsGroup: 2, supplementalGroupsPolicy: Strict}", "securityContext: {runAsUser: 8, runAsGroup: 9}",
			&runtime.Image{}, uid(8), uid(9), "", "[]", strict, "1 2"},
		{"policy Merge", "securityContext: {supplementalGroupsPolicy: Merge, fsGroup: 0}", "", &runtime.Image{}, uid(0), nil, "", "[0]", merge, "<nil> <nil>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, tt.container))
			sc := translated(t, in, ContainerInput{Image: tt.image}).GetLinux().GetSecurityContext()
			if sc.GetRunAsUser().String() != tt.user.String() || sc.GetRunAsGroup().String() != tt.group.String() || (sc.RunAsUser == nil) != (tt.user == nil) ||
				sc.GetRunAsUsername() != tt.username || fmt.Sprint(sc.GetSupplementalGroups()) != tt.groups || sc.GetSupplementalGroupsPolicy() != tt.policy {
				t.Errorf("%v", sc)
			}
			sandbox, _, err := Sandbox(in)
			if err != nil {
				t.Fatal(err)
			}
			s := sandbox.GetLinux().GetSecurityContext()
			if got := number(s.RunAsUser) + " " + number(s.RunAsGroup); got != tt.sandbox || fmt.Sprint(s.GetSupplementalGroups()) != tt.groups || s.GetSupplementalGroupsPolicy() != tt.policy {
				t.Errorf("sandbox: %v", s)
			}
		})
	}
}

func number(v *runtime.Int64Value) string {
	if v == nil {
		return "<nil>"
	}
	return fmt.Sprint(v.GetValue())
}

// SE3, SE4, SE5
func TestPrivileges(t *testing.T) {
	for _, tt := range []struct {
		container                                           string
		privileged, sandboxPrivileged, readonly, noNewPrivs bool
		add, drop                                           string
	}{
		{"", false, false, false, false, "[]", "[]"},
		{"securityContext: {privileged: true}", true, true, false, false, "[]", "[]"},
		{"securityContext: {privileged: false, readOnlyRootFilesystem: true}", false, false, true, false, "[]", "[]"},
		{"securityContext: {allowPrivilegeEscalation: true}", false, false, false, false, "[]", "[]"},
		{"securityContext: {allowPrivilegeEscalation: false}", false, false, false, true, "[]", "[]"},
		{"securityContext: {capabilities: {add: [SYS_TIME, NET_ADMIN], drop: [ALL]}}", false, false, false, false, "[SYS_TIME NET_ADMIN]", "[ALL]"},
	} {
		t.Run(tt.container, func(t *testing.T) {
			in := input(specPod(t, "", tt.container))
			sandbox, _, err := Sandbox(in)
			if err != nil {
				t.Fatal(err)
			}
			sc := translated(t, in, ContainerInput{}).GetLinux().GetSecurityContext()
			if sc.GetPrivileged() != tt.privileged || sandbox.GetLinux().GetSecurityContext().GetPrivileged() != tt.sandboxPrivileged ||
				sc.GetReadonlyRootfs() != tt.readonly || sc.GetNoNewPrivs() != tt.noNewPrivs ||
				fmt.Sprint(sc.GetCapabilities().GetAddCapabilities()) != tt.add || fmt.Sprint(sc.GetCapabilities().GetDropCapabilities()) != tt.drop {
				t.Errorf("%v", sc)
			}
		})
	}
	// A privileged init container needs a privileged sandbox too.
	sandbox, _, err := Sandbox(input(specPod(t, "initContainers: [{name: i, image: i, securityContext: {privileged: true}}]", "")))
	if err != nil || !sandbox.GetLinux().GetSecurityContext().GetPrivileged() {
		t.Errorf("%v, %v", sandbox, err)
	}
}

// SE6, SE7: profiles as type and reference.
func TestProfiles(t *testing.T) {
	const key = "container.apparmor.security.beta.kubernetes.io/app"
	for _, tt := range []struct {
		name, spec, container, annotation string
		folder                            string
		seccomp, apparmor, err            string
	}{
		{"none", "", "", "", "/s", "Unconfined ", "nil", ""},
		{"pod's", "securityContext: {seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: RuntimeDefault}}", "", "", "/s", "RuntimeDefault ", "RuntimeDefault ", ""},
		{"container's before the pod's", "securityContext: {seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: RuntimeDefault}}",
			"securityContext: {seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}}", "", "/s", "Unconfined ", "Unconfined ", ""},
		{"local", "", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/b.json}, appArmorProfile: {type: Localhost, localhostProfile: mine}}", "", "/s",
			"Localhost /s/a/b.json", "Localhost mine", ""},
		{"local without a folder", "", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: /etc/p.json}}", "", "", "Localhost /etc/p.json", "nil", ""},
		{"absolute", "", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: /etc/p.json}}", "", "/s", "", "",
			`securityContext.seccompProfile.localhostProfile: "/etc/p.json" is not a path below the folder of profiles: invalid argument`},
		{"climbing", "", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../p.json}}", "", "/s", "", "",
			`securityContext.seccompProfile.localhostProfile: "../p.json" is not a path below the folder of profiles: invalid argument`},
		{"climbing inside", "", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/../p.json}}", "", "/s", "", "",
			`securityContext.seccompProfile.localhostProfile: "a/../p.json" is not a path below the folder of profiles: invalid argument`},
		{"no name", "", "securityContext: {seccompProfile: {type: Localhost}}", "", "/s", "", "",
			"securityContext.seccompProfile.localhostProfile: must be set if the type is Localhost: invalid argument"},
		{"type", "", "securityContext: {seccompProfile: {type: Strict}}", "", "/s", "", "", `securityContext.seccompProfile.type: "Strict" is not known: invalid argument`},
		{"annotation", "", "", "localhost/old", "/s", "Unconfined ", "Localhost old", ""},
		{"annotation before the pod's", "securityContext: {appArmorProfile: {type: RuntimeDefault}}", "", "unconfined", "/s", "Unconfined ", "Unconfined ", ""},
		{"container's before the annotation", "", "securityContext: {appArmorProfile: {type: Unconfined}}", "runtime/default", "/s", "Unconfined ", "Unconfined ", ""},
		{"annotation: default", "", "", "runtime/default", "/s", "Unconfined ", "RuntimeDefault ", ""},
		{"annotation without a name", "", "", "localhost/", "/s", "", "", "securityContext.appArmorProfile.localhostProfile: must be set if the type is Localhost: invalid argument"},
		{"annotation that is not known", "", "", "docker", "/s", "", "", `securityContext.appArmorProfile.type: "docker" is not known: invalid argument`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := specPod(t, tt.spec, tt.container)
			pod.Annotations = map[string]string{key: tt.annotation}
			in := input(pod)
			in.Node.SeccompProfiles = tt.folder
			config, err := Container(in, &pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
			checkText(t, err, tt.err, errdefs.IsInvalidArgument)
			if tt.err != "" {
				return
			}
			sc := config.GetLinux().GetSecurityContext()
			if got := profileText(sc.Seccomp); got != tt.seccomp {
				t.Errorf("seccomp %q, want %q", got, tt.seccomp)
			}
			if got := profileText(sc.Apparmor); got != tt.apparmor {
				t.Errorf("AppArmor %q, want %q", got, tt.apparmor)
			}
			sandbox, _, err := Sandbox(in)
			if err != nil || profileText(sandbox.GetLinux().GetSecurityContext().GetSeccomp()) != "RuntimeDefault " {
				t.Errorf("sandbox: %v, %v", sandbox.GetLinux(), err)
			}
		})
	}
}

// SE6: with the node's default profile a container that names none is confined, and one that does
// keeps its own.
func TestSeccompDefault(t *testing.T) {
	const unconfined = "securityContext: {seccompProfile: {type: Unconfined}}"
	for _, tt := range []struct{ spec, container, want string }{
		{"", "", "RuntimeDefault "},
		{unconfined, "", "Unconfined "},
		{"", unconfined, "Unconfined "},
		{"", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: p.json}}", "Localhost /s/p.json"},
	} {
		pod := specPod(t, tt.spec, tt.container)
		in := input(pod)
		in.Node.SeccompDefault, in.Node.SeccompProfiles = true, "/s"
		config, err := Container(in, &pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
		if err != nil || profileText(config.GetLinux().GetSecurityContext().GetSeccomp()) != tt.want {
			t.Errorf("%q %q: %v, %v, want %q", tt.spec, tt.container, config.GetLinux().GetSecurityContext().GetSeccomp(), err, tt.want)
		}
	}
}

func profileText(p *runtime.SecurityProfile) string {
	if p == nil {
		return "nil"
	}
	return p.GetProfileType().String() + " " + p.GetLocalhostRef()
}

// SE8
func TestSELinux(t *testing.T) {
	in := input(specPod(t, "securityContext: {seLinuxOptions: {user: u, role: r, type: t, level: s0}}", ""))
	pod := &runtime.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0"}
	if got := translated(t, in, ContainerInput{}).GetLinux().GetSecurityContext().GetSelinuxOptions(); got.String() != pod.String() {
		t.Errorf("%v", got)
	}
	sandbox, _, err := Sandbox(in)
	if err != nil || sandbox.GetLinux().GetSecurityContext().GetSelinuxOptions().String() != pod.String() {
		t.Errorf("sandbox: %v, %v", sandbox, err)
	}
	in = input(specPod(t, "securityContext: {seLinuxOptions: {user: u}}", "securityContext: {seLinuxOptions: {level: s1}}"))
	if got := translated(t, in, ContainerInput{}).GetLinux().GetSecurityContext().GetSelinuxOptions(); got.GetLevel() != "s1" || got.GetUser() != "" {
		t.Errorf("container's: %v", got)
	}
}

// SE9, SE10
func TestHiddenPaths(t *testing.T) {
	for _, tt := range []struct{ name, spec, container, masked, readonly, err string }{
		{"default", "", "", "[/proc/kcore /sys/firmware]", "[/proc/sys]", ""},
		{"Default", "", "securityContext: {procMount: Default}", "[/proc/kcore /sys/firmware]", "[/proc/sys]", ""},
		{"Unmasked", "hostUsers: false", "securityContext: {procMount: Unmasked}", "[]", "[]", ""},
		{"Unmasked with the node's users", "", "securityContext: {procMount: Unmasked}", "", "", "securityContext.procMount: Unmasked needs spec.hostUsers: false: invalid argument"},
		{"unknown", "", "securityContext: {procMount: Half}", "", "", `securityContext.procMount: "Half" is not known: invalid argument`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, tt.container))
			in.UserNamespace = 65536
			config, err := Container(in, &in.Pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
			checkText(t, err, tt.err, errdefs.IsInvalidArgument)
			sc := config.GetLinux().GetSecurityContext()
			if tt.err == "" && (fmt.Sprint(sc.GetMaskedPaths()) != tt.masked || fmt.Sprint(sc.GetReadonlyPaths()) != tt.readonly) {
				t.Errorf("%v %v", sc.GetMaskedPaths(), sc.GetReadonlyPaths())
			}
		})
	}
	// A caller that forgets the node's lists must not get containers that see everything.
	for _, drop := range []func(*Node){func(n *Node) { n.MaskedPaths = nil }, func(n *Node) { n.ReadonlyPaths = nil }} {
		in := input(specPod(t, "", ""))
		drop(&in.Node)
		_, err := Container(in, &in.Pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}})
		checkText(t, err, `node "edge-1" has no masked and read-only paths`, errdefs.IsFailedPrecondition)
	}
}

// SE12
func TestCheckSysctls(t *testing.T) {
	for _, tt := range []struct {
		name, spec, sysctl string
		unsafe             []string
		want               string
	}{
		{"safe", "", "net.ipv4.tcp_syncookies", nil, ""},
		{"safe, with slashes", "", "net/ipv4/tcp_syncookies", nil, ""},
		{"safe, of IPC", "", "kernel.shm_rmid_forced", nil, ""},
		{"the newest safe one", "", "net.ipv4.tcp_wmem", nil, ""},
		{"not listed", "", "net.core.somaxconn", nil, `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		{"allowed by name", "", "net.core.somaxconn", []string{"net.core.somaxconn"}, ""},
		{"allowed by prefix", "", "net.core.somaxconn", []string{"kernel.msg*", "net.*"}, ""},
		{"another prefix", "", "net.core.somaxconn", []string{"net.ipv4.*", "net.core.somaxcon"}, `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		{"host's network", "hostNetwork: true", "net.ipv4.tcp_syncookies", nil, `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled`},
		{"host's network, allowed", "hostNetwork: true", "net.core.somaxconn", []string{"net.*"}, `forbidden sysctl: "net.core.somaxconn" not allowed with host net enabled`},
		{"host's IPC", "hostIPC: true", "kernel.shm_rmid_forced", nil, `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled`},
		{"IPC by prefix", "", "kernel.msgmax", []string{"kernel.msg*"}, ""},
		{"of no namespace", "", "vm.overcommit_memory", []string{"*"}, `forbidden sysctl: "vm.overcommit_memory" is not known to be namespaced`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := specPod(t, "securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: '1'}, {name: "+tt.sysctl+", value: '1'}]}", "")
			host := specPod(t, tt.spec, "")
			pod.Spec.HostNetwork, pod.Spec.HostIPC = host.Spec.HostNetwork, host.Spec.HostIPC
			if pod.Spec.HostNetwork {
				pod.Spec.SecurityContext.Sysctls = pod.Spec.SecurityContext.Sysctls[1:]
			}
			checkText(t, CheckSysctls(pod, tt.unsafe), tt.want, errdefs.IsFailedPrecondition)
		})
	}
	if err := CheckSysctls(specPod(t, "", ""), nil); err != nil {
		t.Error(err)
	}
}

// SE12: names go to the server with dots; a dot in a part of a name with slashes stays.
func TestSysctlNames(t *testing.T) {
	pod := specPod(t, "securityContext: {sysctls: [{name: net/ipv4/conf/eth0.100/forwarding, value: '1'}, {name: net.ipv4.conf.lo/1.mtu, value: '2'}]}", "")
	config, _, err := Sandbox(input(pod))
	if err != nil {
		t.Fatal(err)
	}
	got := config.GetLinux().GetSysctls()
	if len(got) != 2 || got["net.ipv4.conf.eth0/100.forwarding"] != "1" || got["net.ipv4.conf.lo/1.mtu"] != "2" {
		t.Errorf("%v", got)
	}
}

// AD15: a pod that asks for a profile does not run where none is enforced, with a kubelet's message.
func TestCheckAppArmor(t *testing.T) {
	const profile = "securityContext: {appArmorProfile: {type: RuntimeDefault}}"
	annotated := specPod(t, "", "")
	annotated.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/app": "runtime/default"}
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		refused bool
	}{
		"none":             {specPod(t, "", ""), false},
		"pod's":            {specPod(t, profile, ""), true},
		"container's":      {specPod(t, "", profile), true},
		"annotation's":     {annotated, true},
		"init container's": {specPod(t, "initContainers: [{name: i, image: i, "+profile+"}]", ""), true},
		"unconfined":       {specPod(t, profile, "securityContext: {appArmorProfile: {type: Unconfined}}"), false},
	} {
		if err := CheckAppArmor(tt.pod, true); err != nil {
			t.Errorf("%s, enabled: %v", name, err)
		}
		err := CheckAppArmor(tt.pod, false)
		if (err != nil) != tt.refused || err != nil && err.Error() != "Cannot enforce AppArmor: AppArmor is not enabled on the host" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
