package cgroup

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestParseMounts(t *testing.T) {
	parse := func(text string) (*Mounts, error) {
		table, err := mountinfo.GetMountsFromReader(strings.NewReader(text), func(m *mountinfo.Info) (skip, stop bool) {
			return m.Mountpoint == "/hidden" || !strings.HasPrefix(m.FSType, "cgroup"), false
		})
		if err != nil {
			t.Fatal(err)
		}
		return fromTable(table)
	}
	for _, c := range []struct {
		name, mounts, unified, hybrid string
		v1                            map[string]string
	}{
		{
			"v2", "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup", "",
			map[string]string{},
		},
		{
			"hybrid", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" +
				"30 31 0:29 / /hidden rw - cgroup cgroup rw,cpu\n" +
				"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n" +
				"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
				"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
				"50 31 0:38 / /sys/fs/cgroup/with\\040space rw - cgroup cgroup rw,memory\n", "", "/sys/fs/cgroup/unified",
			map[string]string{
				"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
				"name=systemd": "/sys/fs/cgroup/systemd", "memory": "/sys/fs/cgroup/with space",
			},
		},
	} {
		m, err := parse(c.mounts)
		if err != nil {
			t.Fatal(err)
		}
		if m.Unified != c.unified || m.Hybrid != c.hybrid || !maps.Equal(m.V1, c.v1) {
			t.Errorf("%s: got %+v", c.name, m)
		}
	}
	if _, err := parse("1 2 0:3 / / rw - ext4 /dev/vda rw\n"); err == nil {
		t.Error("a machine without cgroups was accepted")
	}
}

// Without the mount table the same hierarchies are found, on a machine that has them where they
// usually are.
func TestUsualMounts(t *testing.T) {
	found, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	usual, err := Usual()
	if err != nil {
		t.Fatal(err)
	}
	if usual.Unified != found.Unified || usual.Hybrid != found.Hybrid || !maps.Equal(usual.V1, found.V1) {
		t.Errorf("usual are %+v, the mount table has %+v", usual, found)
	}
	for _, root := range usual.Roots() {
		if !strings.HasPrefix(root, MountPoint) || !slices.Contains(found.Roots(), root) {
			t.Errorf("root %q", root)
		}
	}
}
