package spec

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/user"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/regular"
)

// maxUserFile bounds what is read of an image's passwd and group files.
const maxUserFile = 8 << 20

// checkUser refuses a user that contradicts itself.
func checkUser(sc *runtime.LinuxContainerSecurityContext) error {
	switch {
	case sc.GetRunAsUser() != nil && sc.GetRunAsUsername() != "":
		return invalid("run_as_username", "run_as_user is given too")
	case sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil && sc.GetRunAsUsername() == "":
		return invalid("run_as_group", "is given without run_as_user or run_as_username")
	}
	return nil
}

// ResolveUser says who a container's first process runs as: the security context's user, else the
// image's, else root. Names are looked up in /etc/passwd and /etc/group of fsys, the container's
// root filesystem, which is nil without one. fsys must open only regular files, and must not lead
// out of that root (regular.Tree).
//
// Without a group the image's is used if the user is the image's (kubelets name that user in the
// security context, but not its group), else the user's own from passwd, else 0. The supplementary
// groups are that group, with policy Merge those that list the user in /etc/group, and those of the
// security context.
//
// # Errors
//
// ErrInvalidArgument for an unknown or invalid user or group.
func ResolveUser(fsys fs.FS, image ocispec.ImageConfig, sc *runtime.LinuxContainerSecurityContext) (User, error) {
	if err := checkUser(sc); err != nil {
		return User{}, err
	}
	imageUser, imageGroup, _ := strings.Cut(strings.TrimSpace(image.User), ":")
	field, wantUser, wantGroup := "image user", imageUser, imageGroup
	if v := sc.GetRunAsUser(); v != nil {
		field, wantUser = "run_as_user", strconv.FormatInt(v.GetValue(), 10)
	} else if name := sc.GetRunAsUsername(); name != "" {
		field, wantUser = "run_as_username", name
	}
	if wantUser != imageUser {
		wantGroup = ""
	}
	if _, ok := runtime.SupplementalGroupsPolicy_name[int32(sc.GetSupplementalGroupsPolicy())]; !ok {
		return User{}, invalid("supplemental_groups_policy", "%d is not known", sc.GetSupplementalGroupsPolicy())
	}
	if v := sc.GetRunAsGroup(); v != nil {
		wantGroup = strconv.FormatInt(v.GetValue(), 10)
	}
	name, u, err := lookupUser(fsys, field, wantUser, field == "run_as_username")
	if err != nil {
		return User{}, err
	}
	groups, err := readGroups(fsys)
	if err != nil {
		return User{}, err
	}
	if wantGroup != "" {
		if u.GID, err = lookupGroup(groups, wantGroup); err != nil {
			return User{}, err
		}
	}
	u.Groups = []uint32{u.GID}
	if sc.GetSupplementalGroupsPolicy() == runtime.SupplementalGroupsPolicy_Merge && name != "" {
		for _, g := range groups {
			if slices.Contains(g.List, name) && g.Gid >= 0 && int64(g.Gid) < math.MaxUint32 {
				u.Groups = append(u.Groups, uint32(g.Gid))
			}
		}
	}
	for _, g := range sc.GetSupplementalGroups() {
		gid, err := id("supplemental_groups", g)
		if err != nil {
			return User{}, err
		}
		u.Groups = append(u.Groups, gid)
	}
	slices.Sort(u.Groups[1:])
	more := slices.DeleteFunc(u.Groups[1:], func(gid uint32) bool { return gid == u.GID })
	u.Groups = u.Groups[:1+len(slices.Compact(more))]
	return u, nil
}

// lookupUser answers the user's name too, "" if passwd has none for the id.
// A name of digits is an id, unless it must be a name.
func lookupUser(fsys fs.FS, field, want string, nameOnly bool) (string, User, error) {
	want = cmp.Or(want, "0")
	uid, convErr := strconv.ParseInt(want, 10, 64)
	numeric := convErr == nil && !nameOnly
	u := User{Home: "/"}
	if numeric {
		n, err := id(field, uid)
		if err != nil {
			return "", User{}, err
		}
		u.UID = n
	}
	text, err := readFile(fsys, "etc/passwd")
	if err != nil {
		return "", User{}, err
	}
	found, err := user.ParsePasswdFilter(strings.NewReader(text), func(e user.User) bool {
		return e.Name == want && !numeric || numeric && int64(e.Uid) == uid
	})
	if err != nil {
		return "", User{}, fmt.Errorf("read /etc/passwd of the image: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if len(found) == 0 {
		if numeric {
			return "", u, nil
		}
		return "", User{}, invalid(field, "the image's /etc/passwd has no user %q", want)
	}
	e := found[0]
	if u.UID, err = id(field, int64(e.Uid)); err != nil {
		return "", User{}, err
	}
	if u.GID, err = id(field, int64(e.Gid)); err != nil {
		return "", User{}, err
	}
	if e.Home != "" {
		u.Home = e.Home
	}
	return e.Name, u, nil
}

func readGroups(fsys fs.FS) ([]user.Group, error) {
	text, err := readFile(fsys, "etc/group")
	if err != nil {
		return nil, err
	}
	groups, err := user.ParseGroup(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read /etc/group of the image: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return groups, nil
}

func lookupGroup(groups []user.Group, want string) (uint32, error) {
	if gid, err := strconv.ParseInt(want, 10, 64); err == nil {
		return id("group", gid)
	}
	for _, g := range groups {
		if g.Name == want {
			return id("group", int64(g.Gid))
		}
	}
	return 0, fmt.Errorf("the image's /etc/group has no group %q: %w", want, errdefs.ErrInvalidArgument)
}

// readFile reads a file of the image, whose author may have put anything there:
// only a regular one, and not without end. A missing one is empty.
func readFile(fsys fs.FS, name string) (string, error) {
	if fsys == nil {
		return "", nil
	}
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the image's %q: %w: %w", "/"+name, err, errdefs.ErrInvalidArgument)
	}
	defer f.Close()
	data, err := regular.ReadAll(f, "/"+name, maxUserFile)
	if err != nil {
		return "", fmt.Errorf("read the image's %q: %w", "/"+name, err)
	}
	return string(data), nil
}

// id checks a user or group id; the highest means "none" to the kernel.
func id(field string, v int64) (uint32, error) {
	if v < 0 || v >= math.MaxUint32 {
		return 0, invalid(field, "%d cannot be an id", v)
	}
	return uint32(v), nil
}
