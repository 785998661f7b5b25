package facts

import (
	"bufio"
	"bytes"
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
	f, err := os.Open("/sys/kernel/security/apparmor/profiles")
	if err != nil {
		return nil, fmt.Errorf("list AppArmor profiles: %w", err)
	}
	defer f.Close()
	names := []string{}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		if name, _, ok := strings.Cut(scan.Text(), " ("); ok {
			names = append(names, name)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("list AppArmor profiles: %w", err)
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
	global, rootless := "@{PROC}=/proc/", ""
	if include := included("tunables/global"); include != "" {
		global = include
	}
	if path, err := exec.LookPath("rootlesskit"); err == nil {
		rootless = "signal (receive) peer=" + path + ","
	}
	abi := ""
	if included("abi/3.0") != "" {
		abi = "abi <abi/3.0>,"
	}
	return strings.NewReplacer("$NAME", name, "$ABI", abi, "$GLOBAL", global, "$BASE", included("abstractions/base"),
		"$DAEMON", ownProfile(), "$ROOTLESS", rootless).Replace(profileText)
}

// included is the line that includes a file that came with the parser of profiles, "" if none did.
func included(file string) string {
	if _, err := os.Stat(filepath.Join("/etc/apparmor.d", file)); err != nil {
		return ""
	}
	return "#include <" + file + ">"
}

// ownProfile is the profile that confines this process, without its mode.
func ownProfile() string {
	data, err := os.ReadFile("/proc/self/attr/current")
	if err != nil {
		return "unconfined"
	}
	if name, _, _ := strings.Cut(string(data), " "); name != "" {
		return name
	}
	return "unconfined"
}
