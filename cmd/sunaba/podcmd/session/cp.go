package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/archive"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/host/space"
)

// Exit codes of shells for commands that cannot be run.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// maxComplaint bounds what tar may say about what went wrong, in bytes.
const maxComplaint = 2 << 10

func (p commands) copyCommand() *cli.Command {
	return &cli.Command{
		Name:        "cp",
		Usage:       "copy files and folders from and to a pod's container",
		ArgsUsage:   "[NAMESPACE/]POD:PATH LOCAL | LOCAL [NAMESPACE/]POD:PATH",
		Description: "The container's image must have tar. From a container, links, devices and owners are not copied.",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), criFlag(), containerFlag(),
			&cli.BoolFlag{Name: "no-preserve", Usage: "do not keep owners and permissions"},
		},
		Action: p.inContainer(remotePod, copyFiles),
	}
}

// fileSpec is a file here, or of a pod.
type fileSpec struct{ namespace, pod, path string }

// fileSpecOf reads "PATH", "POD:PATH" or "NAMESPACE/POD:PATH". What starts with "/" or "." is a
// file here.
func fileSpecOf(text, namespace string) (fileSpec, error) {
	pod, file, remote := strings.Cut(text, ":")
	if !remote || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		pod, file = "", text
	} else if pod == "" {
		return fileSpec{}, errors.New("filespec must match the canonical format: [[namespace/]pod:]file/path")
	}
	if file == "" {
		return fileSpec{}, errors.New("filepath can not be empty")
	}
	if ns, name, ok := strings.Cut(pod, "/"); ok {
		namespace, pod = ns, name
	}
	if remote && (namespace == "" || strings.Contains(pod, "/")) {
		return fileSpec{}, errors.New("filespec must match the canonical format: [[namespace/]pod:]file/path")
	}
	return fileSpec{namespace, pod, file}, nil
}

// copySpecs reads the two arguments of cp, of which one is of a pod.
func copySpecs(cmd *cli.Command) (from, to fileSpec, err error) {
	if cmd.NArg() != 2 {
		return from, to, errors.New("source and destination are required")
	}
	if from, err = fileSpecOf(cmd.Args().Get(0), cmd.String("namespace")); err != nil {
		return from, to, err
	}
	if to, err = fileSpecOf(cmd.Args().Get(1), cmd.String("namespace")); err != nil {
		return from, to, err
	}
	switch {
	case from.pod != "" && to.pod != "":
		err = errors.New("one of src or dest must be a local file specification")
	case from.pod == "" && to.pod == "":
		err = errors.New("one of src or dest must be a remote file specification")
	}
	return from, to, err
}

// remotePod is the pod of cp's arguments.
func remotePod(cmd *cli.Command) (namespace, name string, err error) {
	from, to, err := copySpecs(cmd)
	if from.pod != "" {
		return from.namespace, from.pod, err
	}
	return to.namespace, to.pod, err
}

func copyFiles(ctx context.Context, cmd *cli.Command, server *criServer, in running) (int, error) {
	from, to, err := copySpecs(cmd)
	if err != nil {
		return 0, err
	}
	k := &copier{running: in, server: server, plain: cmd.Bool("no-preserve"), notes: cmd.Root().ErrWriter}
	if from.pod != "" {
		return 0, k.fetch(ctx, from.path, to.path)
	}
	return 0, k.send(ctx, from.path, to.path)
}

// copier copies files of one container.
type copier struct {
	running
	server *criServer
	plain  bool
	notes  io.Writer
}

// tar runs tar in the container.
func (k *copier) tar(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	complaint := &beginning{most: maxComplaint}
	code, err := execIn(ctx, k.server, k.id, append([]string{"tar"}, args...), execstream.Streams{Stdin: in, Stdout: out, Stderr: complaint}, false)
	text := oneLine(complaint.String())
	switch {
	case err != nil:
		return fmt.Errorf("run tar in container %q of pod %q: %w", k.container.Name, k.pod.Name, err)
	case code == codeNotFound, code == codeNotExecutable:
		return fmt.Errorf("container %q of pod %q has no tar, which cp needs (%s): use \"sunaba exec\" with a program that it has, or \"sunaba debug\" with an image that has tar",
			k.container.Name, k.pod.Name, text)
	case code != 0:
		return fmt.Errorf("tar in container %q of pod %q ended with exit code %d: %s", k.container.Name, k.pod.Name, code, text)
	case text != "":
		fmt.Fprintln(k.notes, text)
	}
	return nil
}

// fetch copies from the container.
func (k *copier) fetch(ctx context.Context, remote, local string) error {
	remote = path.Clean(remote)
	t := archive.Target{Plain: k.plain, Note: func(text string) { fmt.Fprintln(k.notes, "warning: "+text) }}
	inside := remote
	t.Dir, t.From, t.As = local, path.Base(remote), path.Base(remote)
	switch t.From {
	case ".", "..", "/":
		t.From, t.As = ".", "."
	default:
		inside = path.Dir(remote)
	}
	if info, err := os.Stat(local); err != nil || !info.IsDir() {
		t.Dir, t.As = filepath.Dir(filepath.Clean(local)), filepath.Base(local)
	}
	if err := os.MkdirAll(t.Dir, 0o755); err != nil {
		return err
	}
	var err error
	if t.Limit, err = room(t.Dir); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := k.tar(ctx, []string{"cf", "-", "-C", inside, "./" + t.From}, nil, w)
		ran <- err
		w.CloseWithError(err) // nil is the end
	}()
	made, err := archive.Unpack(ctx, r, t)
	r.Close()
	if err != nil {
		cancel() // the rest is not wanted
	}
	tarErr := <-ran
	switch {
	case tarErr != nil && (err == nil || errors.Is(err, tarErr)):
		return tarErr
	case err != nil:
		return space.Explain(t.Dir, err)
	case made == 0:
		return fmt.Errorf("%q of container %q is a link: name the file or folder that it leads to", remote, k.container.Name)
	}
	return nil
}

// room is how many bytes a container may write to the file system of a folder: a tenth of it stays
// free, or half of what is free now if that is less.
func room(dir string) (int64, error) {
	size, err := space.Size(dir)
	if err != nil {
		return 0, err
	}
	free, err := space.Free(dir)
	return free - min(size/10, free/2), err
}

// send copies to the container.
func (k *copier) send(ctx context.Context, local, remote string) error {
	local, err := filepath.Abs(local)
	if err != nil {
		return err
	}
	if _, err := os.Stat(local); err != nil {
		return err
	}
	remote, err = k.destination(ctx, path.Clean(remote), filepath.Base(local))
	if err != nil {
		return err
	}
	args := []string{"-xmf", "-", "-C", path.Dir(remote)}
	if k.plain {
		args = append([]string{"--no-same-permissions", "--no-same-owner"}, args...)
	}
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := archive.Write(ctx, w, local, path.Base(remote))
		w.CloseWithError(err)
		written <- err
	}()
	err = k.tar(ctx, args, r, io.Discard)
	r.CloseWithError(errTarEnded)
	if werr := <-written; werr != nil && !errors.Is(werr, errTarEnded) {
		return werr
	}
	return err
}

// destination is where a file is copied to in the container: remote, or name in it if it is a
// folder.
func (k *copier) destination(ctx context.Context, remote, name string) (string, error) {
	switch path.Base(remote) {
	case "/", ".", "..":
		return path.Join(remote, name), nil
	}
	code, err := execIn(ctx, k.server, k.id, []string{"test", "-d", remote}, execstream.Streams{Stdout: io.Discard, Stderr: io.Discard}, false)
	if err != nil {
		return "", fmt.Errorf("look for %q in container %q: %w", remote, k.container.Name, err)
	}
	if code == 0 {
		remote = path.Join(remote, name)
	}
	return remote, nil
}

// errTarEnded is what the writer of an archive gets that nobody reads any more.
var errTarEnded = errors.New("tar in the container has ended")

// beginning keeps the beginning of what is written to it.
type beginning struct {
	bytes.Buffer
	most int
}

// Write keeps what fits.
func (b *beginning) Write(p []byte) (int, error) {
	if free := b.most - b.Len(); free > 0 {
		b.Buffer.Write(p[:min(free, len(p))])
	}
	return len(p), nil
}
