package facts

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// LoadedProfiles returns the AppArmor profiles that the kernel has now. need, if it is not "", is
// the runtime's default profile: it is made and loaded if it is not there.
func LoadedProfiles(need string) ([]string, error) {
	names, err := loadedProfiles()
	if err != nil || need == "" || slices.Contains(names, need) {
		return names, err
	}
	cmd := exec.Command("apparmor_parser", "-Kr")
	cmd.Stdin = strings.NewReader(defaultProfile(need))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("load AppArmor profile %q: apparmor_parser: %w: %s", need, err, bytes.TrimSpace(out))
	}
	return append(names, need), nil
}

func loadedProfiles() ([]string, error) {
	data, err := os.ReadFile("/sys/kernel/security/apparmor/profiles")
	if err != nil {
		return nil, fmt.Errorf("list AppArmor profiles: %w", err)
	}
	names := []string{}
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, " ("); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// profileText is containerd's default profile. Its package contrib/apparmor has it as a
// text/template, which calls methods by their names, so that the linker would keep every exported
// method of every type.
//
//go:embed apparmor.profile
var profileText string

// defaultProfile completes profileText for this machine.
func defaultProfile(name string) string {
	rootless := ""
	if path, err := exec.LookPath("rootlesskit"); err == nil {
		rootless = "signal (receive) peer=" + path + ","
	}
	own, _ := os.ReadFile("/proc/self/attr/current") // not confined if it cannot be read
	daemon, _, _ := strings.Cut(strings.TrimSpace(string(own)), " ")
	return strings.NewReplacer("$NAME", name, "$DAEMON", cmp.Or(daemon, "unconfined"), "$ROOTLESS", rootless,
		"$ABI", ifPresent("abi/3.0", "abi <%s>,"), "$BASE", ifPresent("abstractions/base", "#include <%s>"),
		"$GLOBAL", cmp.Or(ifPresent("tunables/global", "#include <%s>"), "@{PROC}=/proc/")).Replace(profileText)
}

// ifPresent is the line that names a file which came with the parser of profiles, "" if none did.
func ifPresent(file, line string) string {
	if _, err := os.Stat(filepath.Join("/etc/apparmor.d", file)); err != nil {
		return ""
	}
	return fmt.Sprintf(line, file)
}
