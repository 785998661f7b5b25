package netns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func users() *UserOptions {
	return &UserOptions{UIDs: IDMap{0, 70000, 65536}, GIDs: IDMap{0, 80000, 65536}}
}

// The namespaces belong to the user namespace: its root may do in them what root may, and sees its
// own ids.
func TestPinUserNamespace(t *testing.T) {
	before := identities(t)
	dir := pinned(t, PinOptions{Net: true, IPC: true, UTS: true, User: users(), Hostname: "own", Sysctls: map[string]string{
		"net.ipv4.ip_local_port_range": "20000 30000", "kernel.shm_rmid_forced": "1", "fs.mqueue.msg_max": "17", "kernel.domainname": "example",
	}})
	for _, c := range []struct{ program, want string }{ // one after another
		{"cat /proc/self/uid_map", "0      70000      65536"},
		{"cat /proc/self/gid_map", "0      80000      65536"},
		{"hostname again", ""},
		{"cat /proc/sys/kernel/hostname", "again"},
		{"ip link set lo down", ""},
		{"cat /proc/sys/net/ipv4/ip_local_port_range", "20000\t30000"},
		{"cat /proc/sys/kernel/shm_rmid_forced", "1"},
		{"cat /proc/sys/fs/mqueue/msg_max", "17"},
		{"sh -c echo;1;>/proc/sys/net/ipv4/ip_default_ttl;&&;id;-u", "0"},
	} {
		args := strings.Fields(c.program)
		if args[0] == "sh" {
			args = []string{"sh", "-c", strings.ReplaceAll(args[2], ";", " ")}
		}
		args = append([]string{"--user=" + filepath.Join(dir, UserFile), "--setuid=0", "--setgid=0"}, args...)
		if got := inside(t, dir, args...); got != c.want {
			t.Errorf("%s: %q, want %q", c.program, got, c.want)
		}
	}
	wantIdentities(t, before)
}

func TestUserNamespaceAlone(t *testing.T) {
	dir := pinned(t, PinOptions{User: users()})
	if !Pinned(filepath.Join(dir, UserFile)) || Pinned(filepath.Join(dir, NetFile)) {
		t.Error("want a user namespace and no other")
	}
	var name string
	if err := WithUserNamespace(*users(), func(path string) error {
		var err error
		name, err = os.Readlink(path)
		return err
	}); err != nil || !strings.HasPrefix(name, "user:[") {
		t.Errorf("%q, %v", name, err)
	}
}

func TestUserNamespaceRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ns")
	if err := PinNamespaces(dir, PinOptions{Net: true, User: &UserOptions{}}); err == nil {
		t.Error("a mapping of nothing was accepted")
	}
	wantNothing(t, dir)
}
