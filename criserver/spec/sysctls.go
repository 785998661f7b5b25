package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/sysctl"
)

// checkSysctls accepts what belongs to a namespace that the pod has for
// itself; anything else would change the host.
func checkSysctls(config *runtime.PodSandboxConfig) error {
	sysctls := config.GetLinux().GetSysctls()
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	seen := map[string]bool{}
	for _, raw := range slices.Sorted(maps.Keys(sysctls)) {
		field := fmt.Sprintf("linux.sysctls[%.300s]", raw)
		name := sysctl.Dotted(raw)
		if seen[name] {
			return invalid(field, "is given twice, in two spellings")
		}
		seen[name] = true
		if strings.ContainsAny(sysctls[raw], "\x00\n") {
			return invalid(field, "the value holds a line break or a zero byte")
		}
		if plain := "." + strings.ReplaceAll(name, "/", ".") + "."; strings.Contains(plain, "..") || strings.ContainsAny(plain, " \t\n\x00") || len(plain) > maxName {
			return invalid(field, "is not the name of a kernel parameter")
		}
		mode := options.GetNetwork() // of the UTS namespace too
		ns := sysctl.NamespaceOf(name)
		if ns == sysctl.IPC {
			mode = options.GetIpc()
		}
		switch {
		case ns == sysctl.None:
			return invalid(field, "does not belong to a namespace, so it would change the host")
		case mode == runtime.NamespaceMode_NODE:
			return invalid(field, "belongs to the %s namespace, which is the host's", ns)
		}
	}
	return nil
}
