package supportbundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
	"github.com/sunaba-project/sunaba/version"
)

// The ends of logs that are read, in bytes.
const (
	shimLog = 64 << 10
	podLog  = 64 << 10
)

// text is a file of the bundle without a form.
type text struct {
	name  string
	write func(context.Context, io.Writer) error
}

func (n Node) texts() []text {
	return []text{{"versions.txt", n.writeVersions}, {"check.txt", n.Check}, {"server.txt", n.writeServer}}
}

// logs are the ends of logs: the server's, of shims, and of pods if they are asked for.
func (n Node) logs(fault func(string, error)) []text {
	all := []text{{serverLog, n.writeLog}}
	add := func(dir, pattern, as string, most int64) {
		t := tree{dir: dir, fault: fault}
		for _, name := range t.files(pattern) {
			all = append(all, text{as + name, func(_ context.Context, w io.Writer) error { return t.end(w, name, most) }})
		}
	}
	add(n.State, "shims/*/"+client.LogName, "logs/", shimLog)
	add(n.State, "sandboxes/*/"+client.LogName, "logs/", shimLog)
	if n.WithPodLogs {
		add(n.PodLogs, "*/*/*.log", "logs/pods/", podLog)
	}
	return all
}

// end writes the last whole lines of a file.
func (t tree) end(w io.Writer, name string, most int64) error {
	f, err := t.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	file, ok := f.(io.ReaderAt)
	if !ok {
		return fmt.Errorf("read %q: %w", name, errors.ErrUnsupported)
	}
	from := max(info.Size()-most, 0)
	data, err := io.ReadAll(io.NewSectionReader(file, from, most))
	lines := string(data)
	if from > 0 { // in the first line may be the end of a secret
		_, lines, _ = strings.Cut(lines, "\n")
	}
	_, werr := io.WriteString(w, lines)
	return errors.Join(err, werr)
}

// writeLog writes the end of the server's log.
func (n Node) writeLog(ctx context.Context, w io.Writer) error {
	if n.LogFile != "" {
		return tree{dir: filepath.Dir(n.LogFile), follow: true}.end(w, filepath.Base(n.LogFile), maxPart)
	}
	journal, err := exec.LookPath("journalctl")
	if err != nil {
		return errors.New("there is no systemd whose journal has the server's log: name its file with --log-file")
	}
	cmd := exec.CommandContext(ctx, journal, "--unit="+n.Unit, "--no-pager", "--quiet", "--output=short-iso-precise", "--lines=50000")
	cmd.Stdout, cmd.WaitDelay = w, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("journalctl --unit=%s: %w", n.Unit, err)
	}
	return nil
}

// writeServer writes what the server that runs says of itself.
func (n Node) writeServer(ctx context.Context, w io.Writer) error {
	c, err := dial.Connect(ctx, n.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, s := range c.Node.GetStatus().GetConditions() {
		fmt.Fprintf(w, "%s: %t %s %s\n", s.GetType(), s.GetStatus(), s.GetReason(), s.GetMessage())
	}
	v, err := c.Version(ctx, &cri.VersionRequest{})
	if err == nil {
		_, err = fmt.Fprintf(w, "server: %s %s\n", v.GetRuntimeName(), v.GetRuntimeVersion())
	}
	return err
}

// writeVersions writes which programs, and which machine the node has.
func (n Node) writeVersions(ctx context.Context, w io.Writer) error {
	fmt.Fprintf(w, "time: %s\nsunaba: %s\ngo: %s %s/%s, %d processors\nwazero: %s\n", time.Now().UTC().Format(time.RFC3339),
		version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), wazeroversion.Linked())
	shim, err := n.Shim()
	if err == nil {
		var out []byte
		out, err = exec.CommandContext(ctx, shim, "-v").Output()
		fmt.Fprintf(w, "shim %s: %s\n", shim, strings.Join(strings.Fields(string(out)), " "))
	}
	for _, binary := range n.Runtimes {
		r := ociruntime.Probe(ctx, binary)
		fmt.Fprintf(w, "OCI runtime %s: %s %s %s\n", binary, r.Path, r.Version, r.Problem)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		fmt.Fprintf(w, "kernel: %s %s\n", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]))
	}
	for _, f := range []struct{ name, start string }{
		{"/etc/os-release", "PRETTY_NAME="}, {"/proc/meminfo", "MemTotal:"}, {"/proc/meminfo", "MemAvailable:"}, {"/proc/self/mounts", "cgroup"},
	} {
		data, rerr := regular.Read(f.name, 1<<20)
		err = errors.Join(err, rerr)
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, f.start) {
				fmt.Fprintln(w, strings.TrimSpace(line))
			}
		}
	}
	for _, dir := range []string{n.Root, n.State, n.PodLogs} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil {
			fmt.Fprintf(w, "disk %s: %d MiB, %d available; %d inodes, %d free; type %#x\n",
				dir, st.Blocks*uint64(st.Bsize)>>20, st.Bavail*uint64(st.Bsize)>>20, st.Files, st.Ffree, st.Type)
		}
	}
	return err
}
