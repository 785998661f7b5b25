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

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
	"github.com/sunaba-project/sunaba/version"
)

// logEnd is how much of the end of a log is read, except of the server's, in bytes.
const logEnd = 64 << 10

// logs are those of shims, and of containers if they are asked for.
func (n Node) logs(fault func(string, error)) (all []item) {
	groups := []source{
		{tree: tree{n.State, false, fault}, pattern: "shims/*/" + client.LogName, as: "logs/"},
		{tree: tree{n.State, false, fault}, pattern: "sandboxes/*/" + client.LogName, as: "logs/"},
	}
	if n.WithPodLogs {
		groups = append(groups, source{tree: tree{n.PodLogs, false, fault}, pattern: "*/*/*.log", as: "logs/pods/"})
	}
	for _, g := range groups {
		for _, name := range g.files() {
			all = append(all, item{g.as + name, true, func(_ context.Context, w io.Writer) (int, error) { return 0, g.end(w, name, logEnd) }})
		}
	}
	return all
}

// end writes the last whole lines of a file.
func (t tree) end(w io.Writer, name string, most int64) error {
	f, err := t.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	from := max(info.Size()-most, 0)
	data, err := io.ReadAll(io.NewSectionReader(f, from, most))
	lines := string(data)
	if from > 0 { // in the first line may be the end of a secret
		_, lines, _ = strings.Cut(lines, "\n")
	}
	_, werr := io.WriteString(w, lines)
	return errors.Join(err, werr)
}

// writeLog writes the end of the server's log.
func (n Node) writeLog(ctx context.Context, w io.Writer) (int, error) {
	if n.LogFile != "" {
		return 0, tree{filepath.Dir(n.LogFile), true, nil}.end(w, filepath.Base(n.LogFile), maxPart)
	}
	cmd := exec.CommandContext(ctx, "journalctl", "--unit="+n.Unit, "--no-pager", "--quiet", "--output=short-iso-precise", "--lines=50000")
	log := &noted{Writer: w}
	cmd.Stdout, cmd.WaitDelay = log, time.Second
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("journalctl --unit=%s: %w", n.Unit, err)
	}
	if !log.any {
		return 0, fmt.Errorf("the journal has nothing of %s: --unit or --log-file says where it is", n.Unit)
	}
	return 0, nil
}

// noted knows whether anything was written.
type noted struct {
	io.Writer
	any bool
}

func (n *noted) Write(p []byte) (int, error) {
	n.any = n.any || len(p) > 0
	return n.Writer.Write(p)
}

// writeServer writes what the server that runs says of itself.
func (n Node) writeServer(ctx context.Context, w io.Writer) (int, error) {
	c, err := dial.Connect(ctx, n.Socket)
	if err != nil {
		return 0, err
	}
	for _, s := range c.Node.GetStatus().GetConditions() {
		fmt.Fprintf(w, "%s: %t %s %s\n", s.GetType(), s.GetStatus(), s.GetReason(), s.GetMessage())
	}
	return 0, c.Close()
}

// writeVersions writes which programs and which machine the node has.
func (n Node) writeVersions(ctx context.Context, w io.Writer) (int, error) {
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
	for _, f := range []struct{ file, starts string }{
		{"/proc/version", "Linux"}, {"/etc/os-release", "PRETTY_NAME="}, {"/proc/meminfo", "Mem"}, {"/proc/self/mounts", "cgroup"},
	} {
		data, rerr := regular.Read(f.file, 1<<20)
		err = errors.Join(err, rerr)
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, f.starts) {
				fmt.Fprint(w, line)
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
	return 0, err
}
