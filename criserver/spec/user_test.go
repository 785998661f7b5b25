package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/regular"
)

func TestResolveUser(t *testing.T) {
	image := fstest.MapFS{
		"etc/passwd": {Data: []byte("root:x:0:0:root:/root:/bin/sh\nalice:x:1000:100:A:/home/alice:/bin/sh\n1234:x:55:56::/digits:\nnobody:x:65534:65534:::\n")},
		"etc/group":  {Data: []byte("root:x:0:\nusers:x:100:\nwheel:x:10:alice,root\ndocker:x:50:alice\n")},
	}
	n := func(v int64) *runtime.Int64Value { return &runtime.Int64Value{Value: v} }
	type sc = runtime.LinuxContainerSecurityContext
	type g = []uint32
	for _, tt := range []struct {
		name  string
		fsys  fs.FS
		image string
		sc    *sc
		want  User
		err   string
	}{
		{"nothing", image, "", nil, User{0, 0, g{0, 10}, "/root"}, ""},
		{"no file system", nil, "", nil, User{0, 0, g{0}, "/"}, ""},
		{"image without files", fstest.MapFS{}, "7:8", &sc{}, User{7, 8, g{8}, "/"}, ""},
		{"image name", image, "alice", &sc{}, User{1000, 100, g{100, 10, 50}, "/home/alice"}, ""},
		{"image id", image, "1000", &sc{}, User{1000, 100, g{100, 10, 50}, "/home/alice"}, ""},
		{"image name and group name", image, "alice:wheel", &sc{}, User{1000, 10, g{10, 50}, "/home/alice"}, ""},
		{"image id and group id", image, "1000:77", &sc{}, User{1000, 77, g{77, 10, 50}, "/home/alice"}, ""},
		{"image unknown id", image, "4242", &sc{}, User{4242, 0, g{0}, "/"}, ""},
		{"no home", image, "nobody", &sc{}, User{65534, 65534, g{65534}, "/"}, ""},
		{"run_as_user over the image's", image, "alice:wheel", &sc{RunAsUser: n(0)}, User{0, 0, g{0, 10}, "/root"}, ""},
		{"run_as_user is the image's", image, "1000:77", &sc{RunAsUser: n(1000)}, User{1000, 77, g{77, 10, 50}, "/home/alice"}, ""},
		{"run_as_username is the image's", image, "alice:wheel", &sc{RunAsUsername: "alice"}, User{1000, 10, g{10, 50}, "/home/alice"}, ""},
		{"run_as_user and group", image, "", &sc{RunAsUser: n(1000), RunAsGroup: n(5)}, User{1000, 5, g{5, 10, 50}, "/home/alice"}, ""},
		{"run_as_username", image, "", &sc{RunAsUsername: "alice"}, User{1000, 100, g{100, 10, 50}, "/home/alice"}, ""},
		{"run_as_username and group", image, "", &sc{RunAsUsername: "alice", RunAsGroup: n(0)}, User{1000, 0, g{0, 10, 50}, "/home/alice"}, ""},
		{"run_as_username of digits is a name", image, "", &sc{RunAsUsername: "1234"}, User{55, 56, g{56}, "/digits"}, ""},
		{"supplemental merged", image, "alice", &sc{SupplementalGroups: []int64{3, 10, 1}}, User{1000, 100, g{100, 1, 3, 10, 50}, "/home/alice"}, ""},
		{"supplemental strict", image, "alice", &sc{SupplementalGroups: []int64{3}, SupplementalGroupsPolicy: runtime.SupplementalGroupsPolicy_Strict}, User{1000, 100, g{100, 3}, "/home/alice"}, ""},
		{"strict with none", image, "alice", &sc{SupplementalGroupsPolicy: runtime.SupplementalGroupsPolicy_Strict}, User{1000, 100, g{100}, "/home/alice"}, ""},
		{"highest id", image, "", &sc{RunAsUser: n(4294967294)}, User{4294967294, 0, g{0}, "/"}, ""},

		{"unknown image user", image, "bob", &sc{}, User{}, `image user: the image's /etc/passwd has no user "bob"`},
		{"unknown image group", image, "alice:staff", &sc{}, User{}, `no group "staff"`},
		{"name without files", nil, "alice", &sc{}, User{}, `no user "alice"`},
		{"unknown username", image, "", &sc{RunAsUsername: "bob"}, User{}, `run_as_username: the image's /etc/passwd has no user "bob"`},
		{"username of unknown digits", image, "", &sc{RunAsUsername: "1000"}, User{}, `no user "1000"`},
		{"group alone", image, "alice", &sc{RunAsGroup: n(1)}, User{}, "run_as_group: is given without"},
		{"policy unknown", image, "alice", &sc{SupplementalGroupsPolicy: 9}, User{}, "supplemental_groups_policy: 9 is not known"},
		{"both users", image, "", &sc{RunAsUser: n(1), RunAsUsername: "alice"}, User{}, "run_as_user is given too"},
		{"negative", image, "", &sc{RunAsUser: n(-1)}, User{}, "run_as_user: -1"},
		{"no user for the kernel", image, "", &sc{RunAsUser: n(4294967295)}, User{}, "4294967295 cannot be an id"},
		{"negative group", image, "", &sc{RunAsUser: n(1), RunAsGroup: n(-2)}, User{}, "-2 cannot be an id"},
		{"negative supplemental", image, "", &sc{SupplementalGroups: []int64{-3}}, User{}, "supplemental_groups: -3"},
		{"passwd is a pipe", hostileTree(t, "passwd", true), "", &sc{}, User{}, "not a regular file"},
		{"group is a directory", hostileTree(t, "group", false), "", &sc{}, User{}, "not a regular file"},
		{"passwd without end", fstest.MapFS{"etc/passwd": {Data: make([]byte, maxUserFile+1)}}, "", &sc{}, User{}, "longer than 8388608 bytes"},
		{"passwd and group are links", linkedTree(t), "alice:staff", &sc{}, User{1000, 50, g{50}, "/home/alice"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ResolveUser(tt.fsys, ocispec.ImageConfig{User: tt.image}, tt.sc)
			if tt.err != "" {
				checkRefusal(t, err, tt.err, errdefs.ErrInvalidArgument)
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

// hostileTree is a root filesystem in which a file of /etc is none.
func hostileTree(t *testing.T, name string, pipe bool) fs.FS {
	t.Helper()
	root := t.TempDir()
	file := filepath.Join(root, "etc", name)
	err := os.MkdirAll(file, 0o755)
	if pipe {
		err = errors.Join(err, os.Remove(file), unix.Mkfifo(file, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return regular.Tree(root)
}

// linkedTree is one whose user names are elsewhere, as those of NixOS and Guix images are.
func linkedTree(t *testing.T) fs.FS {
	t.Helper()
	root := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(root, "store"), 0o755), os.Mkdir(filepath.Join(root, "etc"), 0o755))
	for name, text := range map[string]string{"passwd": "alice:x:1000:100:A:/home/alice:/bin/sh\n", "group": "staff:x:50:\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, "store", name), []byte(text), 0o644))
	}
	err = errors.Join(err, os.Symlink("/store/passwd", filepath.Join(root, "etc/passwd")), os.Symlink("../../../store/group", filepath.Join(root, "etc/group")))
	if err != nil {
		t.Fatal(err)
	}
	return regular.Tree(root)
}
