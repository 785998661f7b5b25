package suites

import (
	"os"
	"os/exec"
	"strings"
)

// Fact is something about a machine that results depend on.
type Fact struct{ Name, Value string }

// Facts are what the suites' results depend on.
func Facts() []Fact {
	first := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return err.Error()
		}
		text, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return text
	}
	file := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(data))
	}
	return []Fact{
		{"kernel", first("uname", "-rv")},
		{"cgroups", first("stat", "-fc", "%T", "/sys/fs/cgroup") + ": " + file("/sys/fs/cgroup/cgroup.controllers")},
		{"security modules", file("/sys/kernel/security/lsm")},
		{"apparmor", file("/sys/module/apparmor/parameters/enabled")},
		{"pressure", strings.Split(file("/proc/pressure/cpu"), "\n")[0]},
		{"systemd", first("systemctl", "--version")},
		{"runc", first("runc", "--version")},
		{"crun", first("crun", "--version")},
		{"criu", first("criu", "--version")},
	}
}
