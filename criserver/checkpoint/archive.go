// Package checkpoint writes checkpoints of running containers, and creates containers from
// checkpoints.
//
// Service.Create creates every other container too: only the image tells whether it was made from a
// checkpoint. Package container knows nothing of checkpoints except where a container keeps the
// state that it starts from.
//
// # Archives
//
// The archive of a container is the tar file that containerd, CRI-O and Podman write too and that
// checkpointctl reads:
//
//	config.dump       what the container was (Config), JSON
//	spec.dump         its OCI specification
//	status.dump       its CRI status, JSON
//	checkpoint/       the state of its processes, as CRIU wrote it
//	rootfs-diff.tar   what it had written to its root filesystem
//	deleted.files     what it had removed from there, a JSON list of paths
//	container.log     its log so far
//	dump.log, stats-dump
//
// Tools also make an image of an archive. Its root filesystem is the archive's content, and its
// manifest names the container in an annotation. A pod's checkpoint is a folder with one archive
// per container, NAME.tar, and PodOptions.
package checkpoint

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/images/unpack/extract"
)

// Names of files in an archive.
const (
	ConfigFile  = "config.dump"
	SpecFile    = "spec.dump"
	StatusFile  = "status.dump"
	StateDir    = "checkpoint"
	RootFile    = "rootfs-diff.tar"
	DeletedFile = "deleted.files"
	LogFile     = "container.log"
	DumpLog     = "dump.log"
	StatsFile   = "stats-dump"
)

// Config is what an archive says of its container.
type Config struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// RootfsImage is the image as the user named it, RootfsImageName a readable name,
	// RootfsImageRef its reference by digest, or its id.
	RootfsImage     string    `json:"rootfsImage,omitempty"`
	RootfsImageRef  string    `json:"rootfsImageRef,omitempty"`
	RootfsImageName string    `json:"rootfsImageName,omitempty"`
	OCIRuntime      string    `json:"runtime,omitempty"`
	CreatedTime     time.Time `json:"createdTime"`
	CheckpointedAt  time.Time `json:"checkpointedTime"`
	RestoredAt      time.Time `json:"restoredTime"`
	Restored        bool      `json:"restored"`
}

// PodOptionsFile is the file of PodOptions in the folder of a pod's checkpoint.
const PodOptionsFile = "pod.options"

// PodOptions say what is in the folder of a pod's checkpoint.
type PodOptions struct {
	Version int `json:"version"`
	// Containers are the archives' names without ".tar", by the containers' names.
	Containers map[string]string `json:"containers"`
}

// WriteJSON writes a file of an archive.
func WriteJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %q: %w", filepath.Base(file), err)
	}
	return os.WriteFile(file, data, 0o600)
}

// ReadJSON reads a file of an archive.
//
// # Errors
//
// ErrInvalidArgument if it is missing, not JSON, or too long.
func ReadJSON(file string, v any) error { return readJSON(file, maxDocument, v) }

func readJSON(file string, limit int64, v any) error {
	data, err := regular.Read(file, limit)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("read %q of a checkpoint: %w: %w", filepath.Base(file), err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Pack makes an archive of a folder, readable by its owner only, and replaces the file at location.
// The archive is written atomically and durably.
//
// # Errors
//
// ErrInvalidArgument if location is in no folder, or exists and is not a regular file.
func Pack(ctx context.Context, dir, location string) error {
	if info, err := os.Lstat(location); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write archive %q: it exists and is not a regular file: %w", location, errdefs.ErrInvalidArgument)
	}
	f, err := durable.Create(location)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if err == nil {
		if err = writeTar(ctx, dir, f); err != nil {
			err = errors.Join(err, f.Discard())
		} else {
			err = f.Commit()
		}
	}
	if err != nil {
		return fmt.Errorf("write archive %q: %w", location, err)
	}
	return nil
}

func writeTar(ctx context.Context, dir string, w io.Writer) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return fmt.Errorf("file %q is neither a folder nor a regular file", path)
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		if header.Name, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		if info.IsDir() {
			header.Name += "/"
		}
		if err := out.WriteHeader(header); err != nil || info.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(out, f)
		return err
	})
	return errors.Join(err, out.Close())
}

// Unpack extracts an archive into an empty folder. The archive may be compressed, and is untrusted:
// only folders and regular files below dir are created, and no more than limit bytes.
//
// # Errors
//
// ErrInvalidArgument if it is not an archive of a container, or larger.
func Unpack(ctx context.Context, location, dir string, limit int64) error {
	err := layOut(ctx, location, dir, newBudget(limit))
	if err == nil {
		err = whole(dir)
	}
	if err != nil {
		return fmt.Errorf("read checkpoint %q: %w", location, err)
	}
	return nil
}

// whole says what is missing from an extracted archive.
func whole(dir string) error {
	for _, name := range []string{ConfigFile, SpecFile, filepath.Join(StateDir, "inventory.img")} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("it has no %s: %w", name, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// Copy copies what a container starts from into an empty folder, from an extracted archive in
// another folder: the root filesystem of an image that was made from one. That is untrusted, and
// may have other files too.
//
// # Errors
//
// ErrInvalidArgument if it is not an archive of a container, or longer than limit bytes.
func Copy(ctx context.Context, from, dir string, limit int64) error {
	left := newBudget(limit)
	in, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, name := range []string{ConfigFile, SpecFile, StateDir, RootFile, DeletedFile} {
		info, err := in.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && info.IsDir():
			err = copyTree(ctx, in, out, name, left)
		case err == nil:
			err = copyFile(in, out, name, info.Mode(), left)
		}
		if err != nil {
			return err
		}
	}
	return whole(dir)
}

func copyTree(ctx context.Context, in, out *os.Root, name string, left *budget) error {
	return fs.WalkDir(in.FS(), name, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if entry.IsDir() {
			return errors.Join(left.file(), out.Mkdir(path, 0o700))
		}
		return copyFile(in, out, path, entry.Type(), left)
	})
}

func copyFile(in, out *os.Root, path string, mode fs.FileMode, left *budget) error {
	if !mode.IsRegular() {
		return fmt.Errorf("file %q is neither a folder nor a regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	f, err := in.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return create(out, path, f, left)
}

func layOut(ctx context.Context, location, dir string, left *budget) error {
	file, err := regular.Open(location)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer file.Close()
	plain, err := extract.Decompress(file)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer plain.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in := tar.NewReader(plain)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
		if err := unpackFile(root, header, in, left); err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, header *tar.Header, content io.Reader, left *budget) error {
	name := filepath.Clean(strings.TrimPrefix(header.Name, "/"))
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("name %q leads out of it: %w", header.Name, errdefs.ErrInvalidArgument)
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return errors.Join(left.file(), root.MkdirAll(name, 0o700))
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		return create(root, name, content, left)
	}
	return fmt.Errorf("file %q is neither a folder nor a regular file: %w", header.Name, errdefs.ErrInvalidArgument)
}

func create(root *os.Root, name string, content io.Reader, left *budget) error {
	if err := left.file(); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, left.reader(content))
	return errors.Join(err, f.Close())
}
