package netns

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "the tests of this package need root")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// pinned makes pins in a fresh directory and checks at the end of the test that nothing of them is
// left.
func pinned(t *testing.T, o PinOptions) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sandbox", "ns")
	if err := PinNamespaces(dir, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := UnpinNamespaces(dir); err != nil {
				t.Error(err)
			}
		}
		wantNothing(t, dir)
	})
	return dir
}

func wantNothing(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left below %s (%v)", dir, err)
	}
}

// inside runs a program in pinned namespaces.
func inside(t *testing.T, dir string, program ...string) string {
	t.Helper()
	args := []string{}
	for file, flag := range map[string]string{NetFile: "--net=", IPCFile: "--ipc=", UTSFile: "--uts="} {
		if path := filepath.Join(dir, file); Pinned(path) {
			args = append(args, flag+path)
		}
	}
	out, err := exec.Command("nsenter", append(args, program...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", program, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPinNamespaces(t *testing.T) {
	before := identities(t)
	dir := pinned(t, PinOptions{Net: true, IPC: true, UTS: true, Hostname: "my-pod", Sysctls: map[string]string{
		"kernel.shm_rmid_forced":              "1",
		"fs.mqueue.msg_max":                   "17",
		"net.ipv4.ip_local_port_range":        "20000 30000",
		"net/ipv4/tcp_syncookies":             "0",
		"net.ipv4.ip_unprivileged_port_start": "80",
		"kernel.domainname":                   "example",
		"net.ipv4.conf.eth0.rp_filter":        "0", // of an interface that is yet to come
	}})
	for name, want := range map[string]string{
		"kernel.shm_rmid_forced": "1", "fs.mqueue.msg_max": "17", "net.ipv4.ip_local_port_range": "20000\t30000",
		"net.ipv4.tcp_syncookies": "0", "net.ipv4.ip_unprivileged_port_start": "80", "kernel.domainname": "example",
		"net.ipv4.ping_group_range": "0\t2147483647", "kernel.hostname": "my-pod",
	} {
		if got := inside(t, dir, "cat", filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if err := Do(filepath.Join(dir, NetFile), func() error {
		lo, err := net.InterfaceByName("lo")
		if err == nil && lo.Flags&net.FlagUp == 0 {
			t.Error("lo is down")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	wantIdentities(t, before)
	if err := PinNamespaces(dir, PinOptions{IPC: true}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("pin again: %v, want AlreadyExists", err)
	}
	if !Pinned(filepath.Join(dir, IPCFile)) {
		t.Error("the refused call took a pin away")
	}
}

// identities are the namespaces of every thread of this process.
func identities(t *testing.T) map[string]bool {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, task := range tasks {
		for _, ns := range []string{NetFile, IPCFile, UTSFile} {
			if id, err := os.Readlink(filepath.Join("/proc/self/task", task.Name(), "ns", ns)); err == nil {
				seen[id] = true
			}
		}
	}
	return seen
}

// wantIdentities waits until no thread is in a namespace in which none was before. Threads that
// were elsewhere end at their own time, also those of an earlier test.
func wantIdentities(t *testing.T, before map[string]bool) {
	t.Helper()
	known := func(id string, _ bool) bool { return before[id] }
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		now := identities(t)
		maps.DeleteFunc(now, known)
		if len(now) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("threads are in namespaces %v, which are new", now)
		}
	}
}

func TestSomeNamespaces(t *testing.T) {
	for _, o := range []PinOptions{{}, {Net: true}, {IPC: true}, {UTS: true, Hostname: "h"}, {Net: true, UTS: true}} {
		dir := filepath.Join(t.TempDir(), "ns")
		if err := PinNamespaces(dir, o); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]bool{NetFile: o.Net, IPCFile: o.IPC, UTSFile: o.UTS} {
			if got := Pinned(filepath.Join(dir, file)); got != want {
				t.Errorf("%+v: pin %s: %v", o, file, got)
			}
		}
		if err := UnpinNamespaces(dir); err != nil {
			t.Error(err)
		}
		wantNothing(t, dir)
	}
}

func TestRefusals(t *testing.T) {
	all := PinOptions{Net: true, IPC: true, UTS: true}
	tests := map[string]struct {
		o    PinOptions
		name string // that the error must say
	}{
		"not namespaced":       {all, "vm.swappiness"},
		"kernel, not IPC":      {all, "kernel.panic"},
		"unknown":              {all, "net.ipv4.nothing_like_this"},
		"net, not namespaced":  {all, "net.core.bpf_jit_enable"},
		"hostname":             {all, "kernel.hostname"},
		"up":                   {all, "net/../kernel/panic"},
		"up, with dots":        {all, "net.//.kernel.panic"},
		"absolute":             {all, "/net/ipv4/ip_forward"},
		"empty":                {all, ""},
		"a directory":          {all, "net.ipv4.conf.all"},
		"node's network":       {PinOptions{IPC: true}, "net.ipv4.ip_forward"},
		"node's IPC":           {PinOptions{Net: true}, "kernel.sem"},
		"node's message queue": {PinOptions{Net: true}, "fs.mqueue.msg_max"},
		"node's UTS":           {PinOptions{Net: true}, "kernel.domainname"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.Sysctls = map[string]string{test.name: "1"}
			dir := filepath.Join(t.TempDir(), "ns")
			err := PinNamespaces(dir, test.o)
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), fmt.Sprintf("%q", test.name)) {
				t.Errorf("error %v, want InvalidArgument that names it", err)
			}
			wantNothing(t, dir)
		})
	}
	for name, o := range map[string]PinOptions{
		"bad value":        {Net: true, Sysctls: map[string]string{"net.ipv4.ip_forward": "many"}},
		"given twice":      {Net: true, Sysctls: map[string]string{"net.ipv4.ip_forward": "1", "net/ipv4/ip_forward": "0"}},
		"long hostname":    {UTS: true, Hostname: strings.Repeat("h", 65)},
		"hostname without": {Net: true, Hostname: "h"},
	} {
		dir := filepath.Join(t.TempDir(), "ns")
		if err := PinNamespaces(dir, o); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
		wantNothing(t, dir)
	}
}

func TestSysctlPath(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.ip_forward":               "net/ipv4/ip_forward",
		"net/ipv4/ip_forward":               "net/ipv4/ip_forward",
		"net/ipv4/conf/eth0.100/forwarding": "net/ipv4/conf/eth0.100/forwarding",
		"net.ipv4.conf.eth0/100.forwarding": "net/ipv4/conf/eth0.100/forwarding",
		"net..ipv4":                         "",
		"net":                               "",
		"net.ipv4.":                         "",
		"net.ipv4./..x":                     "net/ipv4/.//x",
	} {
		got, err := sysctlPath(name)
		if name == "net.ipv4./..x" { // dots become slashes: nothing that is clean
			want = ""
		}
		if got != want || (want == "") != errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestSysctlDefaults has the pod's value count before a default, however the pod spells the name. A
// pod in the host's network has no defaults.
func TestSysctlDefaults(t *testing.T) {
	all, err := parseSysctls(PinOptions{Net: true, Sysctls: map[string]string{
		"net/ipv4/ip_unprivileged_port_start": "1024", "net.ipv4.conf.eth0/1.forwarding": "1",
	}})
	got := map[string]string{}
	for _, s := range all {
		got[s.path] = s.value
	}
	want := map[string]string{
		"net/ipv4/ip_unprivileged_port_start": "1024", "net/ipv4/ping_group_range": "0 2147483647", "net/ipv4/conf/eth0.1/forwarding": "1",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if all, err := parseSysctls(PinOptions{}); err != nil || len(all) != 0 {
		t.Errorf("host network: %v, %v", all, err)
	}
}

func TestInterfaceSysctls(t *testing.T) {
	dir := pinned(t, PinOptions{Net: true})
	sysctls := map[string]string{"net.ipv4.conf.eth0.rp_filter": "2", "net.ipv4.tcp_syncookies": "2", "kernel.sem": "1 2 3 4"}
	if err := SetInterfaceSysctls(dir, sysctls); !errdefs.IsInvalidArgument(err) {
		t.Errorf("without the interface: %v, want InvalidArgument", err)
	}
	if err := Do(filepath.Join(dir, NetFile), func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	}); err != nil {
		t.Fatal(err)
	}
	if err := SetInterfaceSysctls(dir, sysctls); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"conf/eth0/rp_filter": "2", "tcp_syncookies": "1"} {
		if got := inside(t, dir, "cat", filepath.Join("/proc/sys/net/ipv4", name)); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	if err := SetInterfaceSysctls(filepath.Join(dir, "nowhere"), map[string]string{"net.ipv4.ip_forward": "1"}); err != nil {
		t.Errorf("without sysctls of interfaces: %v", err)
	}
}

func TestUnpinHalfMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ns")
	if err := UnpinNamespaces(dir); err != nil {
		t.Errorf("nothing there: %v", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, NetFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if Pinned(filepath.Join(dir, NetFile)) {
		t.Error("a plain file counts as pinned")
	}
	if err := Do(filepath.Join(dir, NetFile), func() error { return nil }); !errdefs.IsNotFound(err) {
		t.Errorf("enter a plain file: %v, want NotFound", err)
	}
	// A half-made pin does not stand in the way of a new try; two of them on top of each other go
	// together.
	if err := PinNamespaces(dir, PinOptions{Net: true}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/self/ns/net", filepath.Join(dir, NetFile), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := UnpinNamespaces(dir); err != nil {
		t.Error(err)
	}
	wantNothing(t, dir)
}

// A failure at the last step: the third mount point cannot be made.
func TestPinUndoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ns")
	if err := os.MkdirAll(filepath.Join(dir, UTSFile, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := PinNamespaces(dir, PinOptions{Net: true, IPC: true, UTS: true}); err == nil {
		t.Fatal("no error")
	}
	for _, file := range []string{NetFile, IPCFile} {
		if _, err := os.Lstat(filepath.Join(dir, file)); !os.IsNotExist(err) {
			t.Errorf("%s is left", file)
		}
	}
}

func TestParallel(t *testing.T) {
	before := identities(t)
	root := t.TempDir()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			dir := filepath.Join(root, fmt.Sprint(i))
			if err := PinNamespaces(dir, PinOptions{Net: true, UTS: true, Hostname: fmt.Sprint("h", i)}); err != nil {
				t.Error(err)
			}
			if err := UnpinNamespaces(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	runtime.LockOSThread() // from the main thread as well, if this is it
	defer runtime.UnlockOSThread()
	dir := filepath.Join(root, "main")
	if err := PinNamespaces(dir, PinOptions{Net: true}); err != nil {
		t.Error(err)
	}
	if err := UnpinNamespaces(dir); err != nil {
		t.Error(err)
	}
	wantIdentities(t, before)
}
