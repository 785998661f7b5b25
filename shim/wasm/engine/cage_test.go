package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/shim"
)

// status returns the lines of a /proc status file by name.
func status(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, line := range strings.Split(string(data), "\n") {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

// checkLocked looks at every thread of a guest process.
func checkLocked(t *testing.T, pid, uid int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	id := fmt.Sprintf("%d %d %d %d", uid, uid, uid, uid)
	want := map[string]string{
		"Uid": id, "Gid": id, "Groups": "", "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
	}
	for _, thread := range threads {
		got := status(t, thread)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", thread, name, got[name], value)
			}
		}
	}
}

func namespaceOf(t *testing.T, pid int, kind string) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// startFurther starts a further process and waits for its guest to say something.
func startFurther(t *testing.T, c shim.Container, p *specs.Process, until string) shim.Process {
	t.Helper()
	out := newOutput(t)
	process, err := c.Exec(context.Background(), "x", p, shim.IO{Stdout: out.theirs})
	if err == nil {
		err = process.Start(context.Background())
	}
	out.theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, until)
	return process
}

func TestGuestIsLockedIn(t *testing.T) { eachWay(t, guestIsLockedIn) }

func guestIsLockedIn(t *testing.T, w way) {
	b := w.newBench(t, "probe", "sleep")
	b.bundle.Spec.Hostname = "sandpit"
	c := b.create()
	pid := c.Init().Pid()
	checkLocked(t, pid, 65534) // before it started
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	checkLocked(t, pid, 65534)
	for _, kind := range []string{"mnt", "pid", "ipc", "uts", "net"} {
		if namespaceOf(t, pid, kind) == namespaceOf(t, os.Getpid(), kind) {
			t.Errorf("%s namespace is the host's", kind)
		}
	}
	if got := rootOf(t, pid); got != "cache rootfs" {
		t.Errorf("root of the guest process holds %q", got)
	}

	further := startFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "sleep"}, Cwd: "/"}, "sleep=on")
	checkLocked(t, further.Pid(), 65534)
	for _, kind := range []string{"mnt", "pid", "ipc", "uts", "net"} {
		if namespaceOf(t, pid, kind) != namespaceOf(t, further.Pid(), kind) {
			t.Errorf("%s namespace of a further process is another", kind)
		}
	}
	if got := rootOf(t, further.Pid()); strings.Contains(got, "rootfs") || !strings.Contains(got, "module.wasm") {
		t.Errorf("root of a further process holds %q", got)
	}
	pids, err := c.Pids(context.Background())
	if err != nil || len(pids) != 2 {
		t.Errorf("processes: %v, %v", pids, err)
	}
}

func rootOf(t *testing.T, pid int) string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/", pid))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func TestGuestRunsAsGivenUser(t *testing.T) { eachWay(t, guestRunsAsGivenUser) }

func guestRunsAsGivenUser(t *testing.T, w way) {
	b := w.newBench(t, "probe", "sleep")
	b.bundle.Spec.Process.User = specs.User{UID: 4321, GID: 4321}
	c := b.create()
	checkLocked(t, c.Init().Pid(), 4321)
}

func TestGuestHasItsOwnHostName(t *testing.T) { eachWay(t, guestHasItsOwnHostName) }

func guestHasItsOwnHostName(t *testing.T, w way) {
	b := w.newBench(t, "probe", "sleep")
	b.bundle.Spec.Hostname = "sandpit"
	c := b.create()
	var name unix.Utsname
	var err error
	thread.Run(func() {
		var ns *os.File
		if ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/uts", c.Init().Pid())); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWUTS); err == nil {
			err = unix.Uname(&name)
		}
	})
	if got := unix.ByteSliceToString(name.Nodename[:]); err != nil || got != "sandpit" {
		t.Errorf("host name is %q, %v", got, err)
	}
	if host, err := os.Hostname(); err != nil || host == "sandpit" {
		t.Errorf("the host's name is %q, %v", host, err)
	}
}

func TestOOMScore(t *testing.T) { eachWay(t, oOMScore) }

func oOMScore(t *testing.T, w way) {
	for score, want := range map[int]string{500: "500", -1000: ""} { // lowering it may be refused and is then left alone
		b := w.newBench(t, "probe", "sleep")
		b.bundle.Spec.Process.OOMScoreAdj = &score
		c := b.create()
		got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.Init().Pid()))
		if err != nil || want != "" && strings.TrimSpace(string(got)) != want {
			t.Errorf("%d: got %q, %v", score, got, err)
		}
	}
}

func TestCompileEntryCannotBeWritten(t *testing.T) { eachWay(t, compileEntryCannotBeWritten) }

func compileEntryCannotBeWritten(t *testing.T, w way) {
	b := w.newBench(t, "probe", "sleep")
	c := b.create()
	var st unix.Statfs_t
	if err := unix.Statfs(fmt.Sprintf("/proc/%d/root/cache", c.Init().Pid()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		t.Error("the compiled module's mount is writable")
	}
}

// TestImageCannotReachOut gives the guest an image full of ways out to a file of the host.
func TestImageCannotReachOut(t *testing.T) { eachWay(t, imageCannotReachOut) }

func imageCannotReachOut(t *testing.T, w way) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("the host's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := outside; dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil && dir == outside {
			t.Fatal(err)
		}
		if filepath.Dir(dir) == "/" {
			break
		}
	}
	ups := strings.Repeat("../", 12)
	b := w.newBench(t, "probe",
		"read:/absolute", "read:/relative", "read:/dir/secret", "read:/updir/secret", "read:/chain", "read:"+ups+secret,
		"read:"+secret, "read:/proc-link", "write:/absolute-new", "write:/dir/new", "list:/root-link", "read:/inside")
	root := b.bundle.Rootfs
	for link, target := range map[string]string{
		"absolute": secret, "relative": ups + secret, "dir": outside, "updir": ups + outside,
		"chain": "chain2", "chain2": ups + secret, "proc-link": "/proc/self/root" + secret,
		"absolute-new": filepath.Join(outside, "new"), "root-link": "/", "inside": "/inner",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "inner"), []byte("the image's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.runToEnd()
	out := b.stdout.all()
	if strings.Contains(out, "the host's") || strings.Contains(out, "=ok") {
		t.Errorf("the guest got out:\n%s", out)
	}
	for _, want := range []string{"read:/inside=the image's", "list:/root-link=12"} {
		if !strings.Contains(out, want) {
			t.Errorf("output has no %q:\n%s", want, out)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside holds %v, %v", entries, err)
	}
}

// TestMountPointsStayInside has mounts whose destinations lead out by links of the image.
func TestMountPointsStayInside(t *testing.T) { eachWay(t, mountPointsStayInside) }

func mountPointsStayInside(t *testing.T, w way) {
	outside, source := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "file"), []byte("mounted\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := w.newBench(t, "probe", "read:/in/way/sub/file", "read:/a/b/c/file")
	root := b.bundle.Rootfs
	if err := os.MkdirAll(filepath.Join(root, "in/real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/in/real", filepath.Join(root, "in/way")); err != nil {
		t.Fatal(err)
	}
	b.bundle.Spec.Mounts = []specs.Mount{
		{Type: "bind", Source: source, Destination: "/in/way/sub", Options: []string{"rbind", "ro"}},
		{Type: "bind", Source: source, Destination: "/a/b/c", Options: []string{"rbind"}},
	}
	b.runToEnd()
	if out := b.stdout.all(); out != "read:/in/way/sub/file=mounted\nread:/a/b/c/file=mounted\n" {
		t.Errorf("got %q; stderr %q", out, b.stderr.all())
	}

	b = w.newBench(t, "probe")
	if err := os.Symlink(filepath.Join(outside, "new"), filepath.Join(b.bundle.Rootfs, "out")); err != nil {
		t.Fatal(err)
	}
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "bind", Source: source, Destination: "/out/sub", Options: []string{"rbind"}}}
	b.pipes(false)
	if _, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{}); err == nil {
		t.Error("a mount point behind a link that leads nowhere was made")
	}
	b.release()
	b.checkGone(0)
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("outside holds %v, %v", entries, err)
	}
}

// TestVolumesCannotReachOut has volumes with links, devices and procfs in them, and hard links from
// what cannot be written to what can.
func TestVolumesCannotReachOut(t *testing.T) { eachWay(t, volumesCannotReachOut) }

func volumesCannotReachOut(t *testing.T, w way) {
	outside, volume := t.TempDir(), openDir(t)
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("the host's\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	ups := strings.Repeat("../", 12)
	for link, target := range map[string]string{"absolute": secret, "relative": ups + secret, "dir": outside, "inside": "/inner"} {
		if err := os.Symlink(target, filepath.Join(volume, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]uint32{"zero": unix.S_IFCHR, "ram": unix.S_IFBLK, "socket": unix.S_IFSOCK} {
		dev := unix.Mkdev(1, 5)
		if err := unix.Mknod(filepath.Join(volume, name), mode|0o666, int(dev)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(volume, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"ro", "rw"} {
		if err := os.Mkdir(filepath.Join(volume, dir), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(volume, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(volume, "ro/f"), []byte("kept\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(volume, "ro/f"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused := []string{
		"read:/v/absolute", "read:/v/relative", "read:/v/dir/secret", "write:/v/dir/new", "read:/v/" + ups + secret,
		"read:/v/zero", "read:/v/ram", "read:/v/socket", "write:/ro/f", "write:/ro/new",
		"link:/ro/f>/rw/g", "link:/ro/f>/g", "link:/ro/f>/ro/g", "link:/rw/../../../../etc/passwd>/rw/h",
		"read:/hp/self/environ", "read:/hp/self/root/etc/passwd", "read:/hp/1/root/etc/passwd", "read:/hp/self/mem",
		"write:/hp/self/mem", "write:/hp/sys/kernel/hostname", "read:/hp/self/fd/0", "read:/hp/self/cwd/etc/passwd",
		fmt.Sprintf("read:/hp/%d/root%s", os.Getpid(), secret),
	}
	b := w.newBench(t, "probe", append(refused, "read:/v/inside", "link:/rw/own>/rw/also", "read:/rw/also")...)
	if err := os.WriteFile(filepath.Join(b.bundle.Rootfs, "inner"), []byte("the image's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(volume, "rw/own")
	if err := os.WriteFile(own, []byte("its own\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	b.bundle.Spec.Mounts = []specs.Mount{
		{Type: "bind", Source: volume, Destination: "/v", Options: []string{"rbind"}},
		{Type: "bind", Source: filepath.Join(volume, "ro"), Destination: "/ro", Options: []string{"rbind", "ro"}},
		{Type: "bind", Source: filepath.Join(volume, "rw"), Destination: "/rw", Options: []string{"rbind"}},
		{Type: "bind", Source: "/proc", Destination: "/hp", Options: []string{"rbind"}},
	}
	exit := b.runToEnd()
	known := map[string]bool{"Permission denied": true, "No such file or directory": true, "Read-only file system": true, "Cross-device link": true,
		"Operation not permitted": true, "Capabilities insufficient": true, "No such device or address": true, "Not a directory": true,
		"Symbolic link loop": true, "Not supported": true}
	said := map[string]string{}
	for line := range strings.Lines(b.stdout.all()) {
		name, result, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		said[name] = result
	}
	for _, try := range refused {
		if !known[said[try]] {
			t.Errorf("%s: %q", try, said[try])
		}
	}
	if said["read:/v/inside"] != "the image's" || said["link:/rw/own>/rw/also"] != "ok" || said["read:/rw/also"] != "its own" {
		t.Errorf("exit %+v, output %v", exit, said)
	}
	if text, err := os.ReadFile(filepath.Join(volume, "ro/f")); err != nil || string(text) != "kept\n" {
		t.Errorf("the read-only file holds %q, %v", text, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside holds %v, %v", entries, err)
	}
}
