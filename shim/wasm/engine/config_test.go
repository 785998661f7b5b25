package engine

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		user     specs.User
		uid, gid uint32
		groups   []uint32
	}{
		{specs.User{}, 65534, 65534, nil},
		{specs.User{AdditionalGids: []uint32{0, 10}}, 65534, 65534, []uint32{10}},
		{specs.User{GID: 5, AdditionalGids: []uint32{7}}, 65534, 5, []uint32{7}},
		{specs.User{UID: 1000, GID: 0, AdditionalGids: []uint32{0}}, 1000, 0, []uint32{0}},
		{specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3}}, 1, 2, []uint32{3}},
	} {
		uid, gid, groups := identity(c.user)
		if uid != c.uid || gid != c.gid || len(groups) != len(c.groups) || len(groups) > 0 && !reflect.DeepEqual(groups, c.groups) {
			t.Errorf("%+v: got %d, %d, %v", c.user, uid, gid, groups)
		}
	}
}

// In a pod with users of its own everybody is one of them, also its root.
func TestOutside(t *testing.T) {
	spec := &specs.Spec{Linux: &specs.Linux{
		Namespaces:  []specs.LinuxNamespace{{Type: specs.UserNamespace, Path: "/ns/user"}},
		UIDMappings: []specs.LinuxIDMapping{{HostID: 70000, Size: 100}, {ContainerID: 200, HostID: 90000, Size: 1}},
		GIDMappings: []specs.LinuxIDMapping{{HostID: 80000, Size: 100}},
	}}
	for _, c := range []struct {
		user, want specs.User
		refused    bool
	}{
		{specs.User{}, specs.User{UID: 70000, GID: 80000}, false},
		{specs.User{UID: 99, GID: 7, AdditionalGids: []uint32{0, 9}}, specs.User{UID: 70099, GID: 80007, AdditionalGids: []uint32{80000, 80009}}, false},
		{specs.User{UID: 200}, specs.User{UID: 90000, GID: 80000}, false},
		{specs.User{UID: 100}, specs.User{}, true},
		{specs.User{GID: 100}, specs.User{}, true},
		{specs.User{AdditionalGids: []uint32{65534}}, specs.User{}, true},
	} {
		got, err := outside(c.user, spec)
		if c.refused != errdefs.IsInvalidArgument(err) || err == nil && (got.UID != c.want.UID || got.GID != c.want.GID || !slices.Equal(got.AdditionalGids, c.want.AdditionalGids)) {
			t.Errorf("%+v: %+v, %v", c.user, got, err)
		}
	}
	user := specs.User{UID: 5, GID: 6, AdditionalGids: []uint32{7}}
	if got, err := outside(user, &specs.Spec{Linux: &specs.Linux{}}); err != nil || !reflect.DeepEqual(got, user) {
		t.Errorf("without a user namespace: %+v, %v", got, err)
	}
}

func TestInitConfig(t *testing.T) {
	limit, umask := int64(32<<20), uint32(0o27)
	b := &shim.Bundle{
		ID: "c", Path: "/bundle", Rootfs: "/bundle/rootfs",
		Spec: &specs.Spec{
			Hostname: "sandpit",
			Root:     &specs.Root{Readonly: true},
			Process: &specs.Process{
				Args: []string{"a", "b"}, Env: []string{"X=1"}, Cwd: "/work", User: specs.User{Umask: &umask},
				Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 10, Hard: 20}},
			},
			Mounts: []specs.Mount{{Type: "bind", Source: "data", Destination: "/data", Options: []string{"ro"}}},
			Linux: &specs.Linux{
				Namespaces: []specs.LinuxNamespace{{Type: specs.UTSNamespace}},
				Resources:  &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}},
			},
		},
		Facts: annotation.Facts{Listeners: []annotation.Listener{{Name: "http", Port: 8080, Optional: true}}, StopWait: true},
	}
	got, trees, err := initConfig(b, compile.Entry{Dir: "/cache/x", StartFunction: true, Size: 1 << 20}, shim.IO{})
	if err != nil {
		t.Fatal(err)
	}
	want := link.Config{
		Args: []string{"a", "b"}, Env: []string{"X=1", "PWD=/work"}, StartFunction: true,
		Rootfs: true, ReadOnly: true,
		Mounts:   []link.Mount{{Type: "bind", Destination: "/data", Options: []string{"ro"}}},
		Hostname: "sandpit", Listen: []annotation.Listener{{Name: "http", Port: 8080, Optional: true}},
		UID: 65534, GID: 65534, Rlimits: []link.Rlimit{{Resource: 7, Soft: 10, Hard: 20}},
		Memory: 32 << 20, Engine: engineReserve + 1<<20, NoStdin: true, StopWait: true, Umask: &umask,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if want := []tree{
		{what: "compiled module", path: "/cache/x", stale: true}, {what: "root file system", path: "/bundle/rootfs", recursive: true},
		{what: `mount "/data"`, path: "/bundle/data"},
	}; !reflect.DeepEqual(trees, want) {
		t.Errorf("got trees %+v, want %+v", trees, want)
	}
	b.Spec.Process.Env = []string{"PWD=/else"}
	b.Spec.Linux.Namespaces[0].Path = "/pod/uts"
	if got, _, err = initConfig(b, compile.Entry{}, shim.IO{}); err != nil || len(got.Env) != 1 || got.Hostname != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestResources(t *testing.T) {
	shares, quota, period, limit, swap, pids := uint64(1024), int64(50000), uint64(100000), int64(1<<20), int64(2<<20), int64(9)
	got := resources(&specs.LinuxResources{
		CPU:     &specs.LinuxCPU{Shares: &shares, Quota: &quota, Period: &period, Cpus: "0", Mems: "0"},
		Memory:  &specs.LinuxMemory{Limit: &limit, Swap: &swap},
		Pids:    &specs.LinuxPids{Limit: &pids},
		Unified: map[string]string{"memory.oom.group": "1"},
		BlockIO: &specs.LinuxBlockIO{ThrottleReadBpsDevice: []specs.LinuxThrottleDevice{{Rate: 5}}},
	}, 3)
	if got.CpuShares != shares || got.CpuWeight == 0 || got.CpuQuota != quota || got.CpuPeriod != period || got.CpusetCpus != "0" ||
		got.Memory != limit+3 || got.MemorySwap != swap+3 || *got.PidsLimit != pids || got.Unified["memory.oom.group"] != "1" ||
		len(got.BlkioThrottleReadBpsDevice) != 1 {
		t.Errorf("got %+v", got)
	}
	if empty := resources(nil, 3); empty == nil || empty.Memory != 0 {
		t.Errorf("got %+v", empty)
	}
}

func TestScopes(t *testing.T) {
	for given, want := range map[string]bool{
		"kubepods-pod1.slice:sunaba:abc": true, ":sunaba:abc": true, "no/slice:x:y": true, "/pods/a:b:c": false,
	} {
		spec := &specs.Spec{Linux: &specs.Linux{CgroupsPath: given}}
		if isScope(spec) != want {
			t.Errorf("%q is a scope: %v, want %v", given, !want, want)
		}
	}
	_, err := openCgroup(&shim.Bundle{Spec: &specs.Spec{Linux: &specs.Linux{CgroupsPath: "no/slice:x:y"}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "invalid slice name") {
		t.Errorf("a parent that cannot be a slice: %v", err)
	}
}
