package setup

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/criserver/check"
	"github.com/sunaba-project/sunaba/tests/login"
)

func text(found []check.Finding) string {
	var lines []string
	for _, f := range found {
		lines = append(lines, f.Subject+": "+f.What+" | "+f.Do)
	}
	return strings.Join(lines, "\n")
}

// SE13: who can write the folder of manifests is root.
func TestFolder(t *testing.T) {
	for name, c := range map[string]struct {
		mode     os.FileMode
		uid, gid int
		want     string
	}{
		"root's":          {0o755, 0, 0, ""},
		"everybody's":     {0o777, 0, 0, "everybody can write it (mode 0777)"},
		"another user's":  {0o755, 1000, 0, "user 1000 owns it"},
		"a group's":       {0o775, 0, 50, "group 50 can write it (mode 0775)"},
		"of root's group": {0o775, 0, 0, ""},
		"read by a group": {0o750, 0, 50, ""},
	} {
		dir := filepath.Join(t.TempDir(), "manifests")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, c.uid, c.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		got := text(Look(t.Context(), Options{Manifests: []string{dir, filepath.Join(dir, "none")}, proc: t.TempDir()}))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A.3: a kubelet on the agent's socket, by its flag or its configuration.
func TestKubelet(t *testing.T) {
	dir, err := os.MkdirTemp("", "sunaba-setup-") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	config := filepath.Join(dir, "kubelet.yaml")
	if err := os.WriteFile(config, []byte("kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://"+socket+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.sock")
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{
		"kubelet --container-runtime-endpoint=unix://" + socket:                      true,
		"kubelet --v 2 --container-runtime-endpoint " + link:                         true,
		"kubelet --config=" + config:                                                 true,
		"kubelet --config=" + config + " --container-runtime-endpoint=unix:///other": false,
		"kubelet": false,
		"crictl --container-runtime-endpoint=unix://" + socket: false,
	} {
		process := filepath.Join(t.TempDir(), "proc", "77")
		if err := os.MkdirAll(process, 0o700); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(line)
		for name, data := range map[string]string{"comm": words[0] + "\n", "cmdline": strings.Join(words, "\x00") + "\x00"} {
			if err := os.WriteFile(filepath.Join(process, name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("/", filepath.Join(process, "root")); err != nil {
			t.Fatal(err)
		}
		got := text(Look(t.Context(), Options{Socket: socket, proc: filepath.Dir(process)}))
		if want != strings.HasPrefix(got, "kubelet (process 77): it uses ") || !want && got != "" {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// SD2: logind lets shutdowns be held back for too short a time.
func TestDelay(t *testing.T) {
	m := login.Start(t) // 5 s
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", m.Address)
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"switched off":           {Options{Grace: 30 * time.Second}, "waits for 5s at most, and pods.shutdown_grace is 30s: pods may be killed | set pods.logind_drop_in"},
		"not heeded":             {Options{Grace: 30 * time.Second, DropIn: true, Served: true}, "systemd-analyze cat-config"},
		"the server will do it":  {Options{Grace: 30 * time.Second, DropIn: true}, ""},
		"long enough":            {Options{Grace: 5 * time.Second}, ""},
		"no shutdown is held up": {Options{}, ""},
	} {
		c.o.proc = t.TempDir()
		if got := text(Look(t.Context(), c.o)); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "bus"))
	if got := text(Look(t.Context(), Options{Grace: time.Hour, proc: t.TempDir()})); got != "" {
		t.Errorf("without logind: %q", got)
	}
}
