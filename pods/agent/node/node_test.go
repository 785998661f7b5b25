package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func tree(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"proc/meminfo":                                             "MemTotal:        1048576 kB\nMemFree: 1 kB\n",
		"proc/sys/kernel/osrelease":                                "6.12.0\n",
		"proc/sys/kernel/random/boot_id":                           "boot\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    "3\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
		"etc/resolv.conf":                                          "nameserver 192.0.2.1\nsearch example\n",
		"etc/hosts":                                                "127.0.0.1 localhost\n",
		"etc/machine-id":                                           "machine\n",
		"etc/os-release":                                           "ID=x\nPRETTY_NAME=\"Some OS 1\"\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Options{
		Name: "till-4", Root: dir, Pods: 110, proc: filepath.Join(dir, "proc"), sys: filepath.Join(dir, "sys"), etc: filepath.Join(dir, "etc"),
		addresses: func() ([]net.Addr, error) {
			var list []net.Addr
			for _, a := range []string{"127.0.0.1/8", "fe80::1/64", "2001:db8::4/64", "192.0.2.4/24", "198.51.100.4/24"} {
				ip, n, err := net.ParseCIDR(a)
				if err != nil {
					return nil, err
				}
				list = append(list, &net.IPNet{IP: ip, Mask: n.Mask})
			}
			return list, nil
		},
	}
}

// NC2, NC3, RE14: capacity, what is left of it for pods, addresses and names.
func TestRead(t *testing.T) {
	o := tree(t)
	o.Reserved = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")}
	f, err := Read(o)
	if err != nil {
		t.Fatal(err)
	}
	memory, free := f.Capacity[corev1.ResourceMemory], f.Node.Allocatable[corev1.ResourceMemory]
	pages := f.Capacity["hugepages-2Mi"]
	for name, tt := range map[string]struct{ got, want string }{
		"memory": {memory.String(), "1Gi"}, "allocatable": {free.String(), "918Mi"}, "pages": {pages.String(), "6Mi"},
		"bytes": {fmt.Sprint(f.Node.Memory), "1073741824"}, "pods": {f.Node.Allocatable.Pods().String(), "110"},
		"sizes": {fmt.Sprint(f.Node.HugePageSizes), "[1GB 2MB]"}, "addresses": {fmt.Sprint(f.Node.IPs), "[192.0.2.4 2001:db8::4]"},
		"servers": {fmt.Sprint(f.Node.Resolv.Servers), "[192.0.2.1]"}, "hosts": {string(f.Node.Hosts), "127.0.0.1 localhost\n"},
		"label": {f.Labels["kubernetes.io/hostname"], "till-4"}, "os": {f.Info.OSImage, "Some OS 1"}, "boot": {f.Info.BootID, "boot"},
		"kernel": {f.Info.KernelVersion, "6.12.0"}, "machine": {f.Info.MachineID, "machine"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", name, tt.got, tt.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"name":     func(o *Options) { o.Name = "Till_4" },
		"too much": func(o *Options) { o.Reserved = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")} },
		"unknown":  func(o *Options) { o.Reserved = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")} },
		"negative": func(o *Options) { o.Reserved = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("-1")} },
	} {
		o := tree(t)
		change(&o)
		if _, err := Read(o); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(Options{Root: t.TempDir(), Pods: 1, Name: "this"}); err != nil {
		t.Errorf("the node of the test: %v", err)
	}
}

// What the caller knows of the node takes the place of what is read.
func TestReadGiven(t *testing.T) {
	o := tree(t)
	o.IPs, o.Resolv = []string{"198.51.100.4"}, []byte("nameserver 192.0.2.53\n")
	f, err := Read(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.Node.IPs, f.Node.Resolv.Servers); got != "[198.51.100.4] [192.0.2.53]" {
		t.Errorf("%s", got)
	}
}
