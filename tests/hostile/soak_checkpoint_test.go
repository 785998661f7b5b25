package hostile

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
)

// parts are what the archive of each container has.
var parts = []string{
	"config.dump", "spec.dump", "status.dump", "rootfs-diff.tar", "container.log", "dump.log",
	"checkpoint/inventory.img", "checkpoint/pstree.img", "checkpoint/core-1.img", "checkpoint/descriptors.json",
}

// checkpoint asks for the checkpoint of a container that counts while something happens to the
// node. There is a whole archive, or an error that says why not and nothing of an archive; the
// container counts on. Without a CRIU that works here each answer is the refusal that says so.
func (f *faults) checkpoint() {
	handler := f.handlers[f.random.IntN(len(f.handlers))]
	refusal := ""
	if out, err := exec.Command("criu", "check").CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		refusal = "criu is not installed"
	} else if err != nil {
		refusal = "criu does not work on this node"
		f.t.Logf("criu check: %s", out)
	}
	if strings.HasPrefix(handler, "wasm") {
		refusal = "WebAssembly"
	}
	f.visit(handler, func(p *pod) {
		c := p.start(sh("i=0; while :; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done"))
		c.counts("before")
		dir, err := os.MkdirTemp(f.disk, "archive-")
		f.check(err)
		what := ckptFaults[f.checkpoints%len(ckptFaults)]
		f.checkpoints++
		limit := time.Minute
		if what.leaves {
			limit = time.Duration(f.random.IntN(2000)) * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), node.Slow(limit))
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, err := f.CheckpointContainer(ctx, &runtime.CheckpointContainerRequest{ContainerId: c.id, Location: filepath.Join(dir, "archive.tar")})
			answered <- err
		}()
		time.Sleep(time.Duration(f.random.IntN(1000)) * time.Millisecond)
		if what.happens != nil {
			what.happens(f)
		}
		err = <-answered
		code := grpcstatus.Code(err)
		switch {
		case err == nil && refusal == "":
			wholeArchive(f, filepath.Join(dir, "archive.tar"))
			code = codes.OK
		case err == nil:
			f.t.Errorf("checkpoint under %s, %s: no error; want %q", handler, what.name, refusal)
		case code == codes.FailedPrecondition && refusal != "" && strings.Contains(err.Error(), refusal):
		case !slices.Contains(what.codes, code):
			f.t.Errorf("checkpoint under %s, %s: %v", handler, what.name, err)
		default:
			f.t.Logf("checkpoint under %s, %s: %v", handler, what.name, err)
		}
		f.count["checkpoint, "+what.name+": "+code.String()]++
		c.counts("after a checkpoint with " + what.name)
		// The server is through when it has emptied its folder; a client that left does not hear of it.
		work, left := filepath.Join(f.Root, "checkpoints"), []string(nil)
		if !node.Within(node.Patience, func() bool { left = below(work); return len(left) == 0 }) {
			f.t.Errorf("checkpoint under %s, %s: left in the folder of checkpoints: %q", handler, what.name, left)
		}
		left = below(dir)
		if whole := len(left) == 1 && left[0] == "archive.tar"; len(left) > 0 && !(whole && (err == nil || what.leaves || what.dies)) && !what.dies {
			f.t.Errorf("checkpoint under %s, %s: %v, and there is %q", handler, what.name, err, left)
		}
		f.check(os.RemoveAll(dir))
	})
}

// below are the files below a folder.
func below(dir string) (left []string) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != dir {
			left = append(left, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	return left
}

// ckptFaults are what happens to a node during a checkpoint, in turn.
var ckptFaults = []struct {
	name    string
	happens func(*faults)
	codes   []codes.Code // of an answer that is an error
	leaves  bool         // the client leaves early
	dies    bool         // the daemon does, and may leave an archive that is not whole under another name
}{
	{name: "no fault"},
	{name: "client leaves", codes: []codes.Code{codes.DeadlineExceeded}, leaves: true},
	{name: "kill of the daemon", happens: func(f *faults) { f.restart() }, codes: []codes.Code{codes.Unavailable, codes.Canceled}, dies: true},
	{name: "full disk", happens: func(f *faults) {
		free := disk.TakeBytes(f.t, f.disk)
		f.aWhile()
		free()
	}, codes: []codes.Code{codes.ResourceExhausted}},
	{name: "read-only root", happens: func(f *faults) {
		writable := disk.Cover(f.t, f.Root)
		f.aWhile()
		writable()
	}, codes: []codes.Code{codes.FailedPrecondition}},
}

// counts waits until a container counts on: then it is not paused.
func (c *container) counts(when string) {
	c.t.Helper()
	if first, counts := node.Counts(c.t.Context(), c, c.id, "/tmp/count", 0); !counts {
		s, err := c.ContainerStatus(c.t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id})
		c.t.Errorf("%s, a container does not count above %d: %v, %v\n%s", when, first, s.GetStatus(), err, c.logOf(c.id))
	}
}

// wholeArchive reads an archive to its end, and wants all parts in it.
func wholeArchive(f *faults, path string) {
	in, err := os.Open(path)
	f.check(err)
	defer in.Close()
	var names []string
	archive := tar.NewReader(in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			_, err = io.Copy(io.Discard, archive)
		}
		if err != nil {
			f.t.Errorf("archive of a checkpoint: %v after %q", err, names)
			return
		}
		names = append(names, header.Name)
	}
	for _, part := range parts {
		if !slices.Contains(names, part) {
			f.t.Errorf("archive of a checkpoint has no %s, only %q", part, names)
		}
	}
}
