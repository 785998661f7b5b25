package spec

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func field(list string, i int, name string) string { return fmt.Sprintf("%s[%d].%s", list, i, name) }

// devices: an unprivileged container may use the devices it is given and
// those that every OCI runtime adds; a privileged one sees all of the host's.
func (in *Input) devices(s *specs.Spec) error {
	s.Linux.Resources = &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: in.privileged(), Access: "rwm"}},
	}
	if in.privileged() {
		for _, d := range in.Host.Devices {
			addDevice(s, d, d.Path)
		}
	}
	for i, want := range in.Container.GetDevices() {
		access := cmp.Or(want.GetPermissions(), "rwm")
		if strings.Trim(access, "rwm") != "" || len(access) > 3 {
			return invalid(field("devices", i, "permissions"), "%q is not made of r, w and m", access)
		}
		at := cmp.Or(want.GetContainerPath(), want.GetHostPath())
		if !path.IsAbs(at) {
			return invalid(field("devices", i, "container_path"), "%.300q is not an absolute path", at)
		}
		if err := CheckPath(at); err != nil {
			return invalid(field("devices", i, "container_path"), "%w", err)
		}
		found := in.Devices[want.GetHostPath()]
		if len(found) == 0 {
			return invalid(field("devices", i, "host_path"), "there is no device at %q", want.GetHostPath())
		}
		for _, d := range found {
			addDevice(s, d, path.Join(at, d.Path))
			s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
				Allow: true, Type: d.Type, Major: &d.Major, Minor: &d.Minor, Access: access,
			})
		}
	}
	return nil
}

// addDevice adds a device file, in place of an earlier one at the same path.
func addDevice(s *specs.Spec, d Device, at string) {
	mode := os.FileMode(d.Mode)
	dev := specs.LinuxDevice{Path: path.Clean(at), Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: &mode, UID: &d.UID, GID: &d.GID}
	if i := slices.IndexFunc(s.Linux.Devices, func(o specs.LinuxDevice) bool { return o.Path == dev.Path }); i >= 0 {
		s.Linux.Devices[i] = dev
		return
	}
	s.Linux.Devices = append(s.Linux.Devices, dev)
}
