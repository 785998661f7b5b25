// Package node reads the facts about this node: its name, addresses and what pods may
// request of it.
package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/meminfo"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// maxFile bounds the files of the node that are read, in bytes.
const maxFile = 1 << 20

// Options are what the configuration says about the node.
type Options struct {
	// Name is the node's name; "" is the host name in lower case.
	Name string
	// Root is a folder on the file system that pods use.
	Root string
	// Pods is how many may run.
	Pods int
	// IPs are the node's addresses; nil are the first ones of its interfaces. Resolv is a
	// resolv.conf; nil is the node's own.
	IPs    []string
	Resolv []byte
	// Reserved is what pods may not request: CPU, memory and ephemeral-storage.
	Reserved corev1.ResourceList

	proc, sys, etc string
	addresses      func() ([]net.Addr, error)
}

// Facts are what was read. The parts of Node that need the server's or the configuration's
// knowledge are left empty.
type Facts struct {
	Node     translate.Node
	Capacity corev1.ResourceList
	// Labels are those that every node has.
	Labels map[string]string
	Info   corev1.NodeSystemInfo
}

// Read reads the facts.
//
// # Errors
//
// ErrInvalidArgument for an invalid name, or if more is reserved than there is; else those of
// the files.
func Read(o Options) (Facts, error) {
	if o.proc == "" {
		o.proc, o.sys, o.etc, o.addresses = "/proc", "/sys", "/etc", net.InterfaceAddrs
	}
	f := Facts{Node: translate.Node{Name: o.Name}}
	if err := o.name(&f); err != nil {
		return f, fmt.Errorf("read facts of node: %w", err)
	}
	for _, read := range []func(*Facts) error{o.capacity, o.network, o.system} {
		if err := read(&f); err != nil {
			return f, fmt.Errorf("read facts of node %q: %w", f.Node.Name, err)
		}
	}
	f.Labels = Labels(f.Node.Name)
	return f, nil
}

// Labels are those that every node of this name has.
func Labels(name string) map[string]string {
	return map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH}
}

func (o Options) name(f *Facts) error {
	if f.Node.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		f.Node.Name = strings.ToLower(strings.TrimSpace(host))
	}
	if problems := validation.IsDNS1123Subdomain(f.Node.Name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s; set node_name: %w", f.Node.Name, problems[0], errdefs.ErrInvalidArgument)
	}
	return nil
}

// capacity reads the total of each resource, and takes off what is reserved.
func (o Options) capacity(f *Facts) error {
	sizes, err := meminfo.Read(o.proc)
	if err != nil {
		return err
	}
	memory := sizes[meminfo.Total]
	var st unix.Statfs_t
	if err := unix.Statfs(o.Root, &st); err != nil {
		return fmt.Errorf("ask the file system of %q for its size: %w", o.Root, err)
	}
	f.Node.Memory = memory
	f.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(st.Blocks)*int64(st.Bsize), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(o.Pods), resource.DecimalSI),
	}
	pages, err := o.hugePages(f)
	if err != nil {
		return err
	}
	f.Node.Allocatable = f.Capacity.DeepCopy()
	free := f.Node.Allocatable[corev1.ResourceMemory]
	free.Sub(*resource.NewQuantity(pages, resource.BinarySI)) // as a kubelet: they are not for others
	f.Node.Allocatable[corev1.ResourceMemory] = free
	for name, reserved := range o.Reserved {
		left, known := f.Node.Allocatable[name]
		if left.Sub(reserved); !known || left.Sign() < 0 || reserved.Sign() < 0 {
			return fmt.Errorf("reserve %s of %s: the node does not have it: %w", reserved.String(), name, errdefs.ErrInvalidArgument)
		}
		f.Node.Allocatable[name] = left
	}
	return nil
}

// hugePages adds the huge pages to the capacity and returns how many bytes they take.
func (o Options) hugePages(f *Facts) (int64, error) {
	dir := filepath.Join(o.sys, "kernel", "mm", "hugepages")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var all int64
	for _, e := range entries {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 40)
		if err != nil || kb <= 0 {
			continue
		}
		data, err := regular.Read(filepath.Join(dir, e.Name(), "nr_hugepages"), 64)
		if err != nil {
			return 0, err
		}
		count, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 40)
		if err != nil {
			return 0, fmt.Errorf("read number of huge pages of %d kB: %w", kb, err)
		}
		size := resource.NewQuantity(kb<<10, resource.BinarySI)
		f.Capacity[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(count*kb<<10, resource.BinarySI)
		f.Node.HugePageSizes = append(f.Node.HugePageSizes, controllerSize(kb))
		all += count * kb << 10
	}
	return all, nil
}

// controllerSize is a size as the hugetlb controller names it: "64KB", "2MB", "1GB".
func controllerSize(kb int64) string {
	switch {
	case kb%(1<<20) == 0:
		return strconv.FormatInt(kb>>20, 10) + "GB"
	case kb%(1<<10) == 0:
		return strconv.FormatInt(kb>>10, 10) + "MB"
	}
	return strconv.FormatInt(kb, 10) + "KB"
}

// network reads the node's addresses, those of IPv4 first, and its files of names.
func (o Options) network(f *Facts) error {
	addresses, err := o.addresses()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	var six string
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		switch four := n.IP.To4(); {
		case four != nil && len(f.Node.IPs) == 0:
			f.Node.IPs = []string{four.String()}
		case four == nil && six == "":
			six = n.IP.String()
		}
	}
	if six != "" {
		f.Node.IPs = append(f.Node.IPs, six)
	}
	if o.IPs != nil {
		f.Node.IPs = o.IPs
	}
	if o.Resolv == nil {
		if o.Resolv, err = o.optional(filepath.Join(o.etc, "resolv.conf")); err != nil {
			return err
		}
	}
	f.Node.Resolv = translate.ParseResolv(o.Resolv)
	f.Node.Hosts, err = o.optional(filepath.Join(o.etc, "hosts"))
	return err
}

// system reads the names of machine, boot, kernel and distribution.
func (o Options) system(f *Facts) error {
	texts := map[string]*string{
		filepath.Join(o.etc, "machine-id"):                         &f.Info.MachineID,
		filepath.Join(o.proc, boot.File):                           &f.Info.BootID,
		filepath.Join(o.proc, "sys", "kernel", "osrelease"):        &f.Info.KernelVersion,
		filepath.Join(o.sys, "class", "dmi", "id", "product_uuid"): &f.Info.SystemUUID,
	}
	for path, text := range texts {
		data, err := o.optional(path)
		if err != nil {
			return err
		}
		*text = strings.TrimSpace(string(data))
	}
	release, err := o.optional(filepath.Join(o.etc, "os-release"))
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(release), "\n") {
		if name, found := strings.CutPrefix(line, "PRETTY_NAME="); found {
			f.Info.OSImage = strings.Trim(name, `"'`)
		}
	}
	f.Info.OperatingSystem, f.Info.Architecture = runtime.GOOS, runtime.GOARCH
	return nil
}

// optional reads a file that a node need not have, or need not let be read.
func (o Options) optional(path string) ([]byte, error) {
	data, err := regular.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	return data, err
}
