package hostile

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// The user names of an image are found where its links lead inside of it, never on the node, and in
// regular files alone.
func TestUserNamesBehindLinks(t *testing.T) {
	n := start(t)
	linked := func(name string, link func(file string) string) string {
		image, err := oci.Busybox(oci.Host(), v1.Config{User: "alice:staff"}, oci.Dir("etc", 0o755), oci.Dir("store", 0o755),
			oci.Text("store/passwd", "alice:x:1000:100:A:/home/alice:/bin/sh\n"), oci.Text("store/group", "staff:x:50:\n"),
			oci.Symlink("etc/passwd", link("passwd")), oci.Symlink("etc/group", link("group")))
		return n.push(name, image, err)
	}
	p := n.run("runc")
	for i, link := range []func(string) string{
		func(file string) string { return "/store/" + file },
		func(file string) string { return "../../../../../../store/" + file },
	} {
		ref := linked(fmt.Sprintf("linked:%d", i), link)
		n.pull(ref)
		c := p.start(of(ref, "/bin/id"))
		if status := c.wait(); status.GetExitCode() != 0 || !strings.Contains(c.text(), "uid=1000") || !strings.Contains(c.text(), "gid=50") {
			t.Errorf("links of kind %d: %v, %q", i, status, c.text())
		}
	}
	for name, target := range map[string]string{"loop": "/etc/passwd", "device": "/dev/zero", "folder": "/store", "process": "/proc/self/root/etc/passwd"} {
		ref := linked("linked:"+name, func(string) string { return target })
		n.pull(ref)
		_, err := p.tryCreate(of(ref, "/bin/id"))
		n.refused(err, codes.InvalidArgument, "/etc/passwd")
	}
}
