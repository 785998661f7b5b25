package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

// maxCopy bounds the copy of the records, in bytes: about a hundred times what a busy node has.
const maxCopy = 64 << 20

// copied is what the copy of the records holds after a line with its digest.
type copied struct {
	Version string
	Salt    []byte
	State   *State
}

// copyPath is the file beside the records that a damaged database is restored from.
func copyPath(path string) string { return path + ".copy" }

// writeCopy makes the copy hold the records that are about to be committed. The copy is never older
// than the records: an older one would give images to those who may not have them any more. So one
// that cannot be written is removed.
func (d *DB) writeCopy() {
	err := d.tryWriteCopy()
	if err == nil {
		return
	}
	d.copySum = ""
	if rerr := os.Remove(d.copyPath); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	d.logger.Warn("failed to copy image records, they have no copy until their next change", "file", d.copyPath, "error", err)
}

func (d *DB) tryWriteCopy() error {
	data, err := d.encoded.copy(d.salt)
	if err != nil {
		return err
	}
	if len(data) > maxCopy {
		return fmt.Errorf("it would have %d bytes, more than %d: %w", len(data), maxCopy, errdefs.ErrResourceExhausted)
	}
	sum := digest.FromBytes(data)
	if sum == d.copySum {
		return nil
	}
	if err := durable.Write(d.copyPath, append([]byte(sum.String()+"\n"), data...), 0o600); err != nil {
		return err
	}
	d.copySum = sum
	return nil
}

// readCopy reads the copy of the records, and its digest.
//
// # Errors
//
// fs.ErrNotExist without one. ErrDataLoss if it is damaged.
func readCopy(path string) (*copied, digest.Digest, error) {
	data, err := regular.Read(path, maxCopy+1<<10)
	if err != nil {
		return nil, "", err
	}
	line, data, _ := bytes.Cut(data, []byte("\n"))
	sum := digest.FromBytes(data)
	if string(line) != sum.String() {
		return nil, "", fmt.Errorf("read %q: it is not what its digest says: %w", path, errdefs.ErrDataLoss)
	}
	c := &copied{State: newState()}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, "", fmt.Errorf("read %q: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	if c.State == nil || len(c.Salt) != saltSize {
		return nil, "", fmt.Errorf("read %q: it lacks records or salt: %w", path, errdefs.ErrDataLoss)
	}
	if c.Version != schemaVersion {
		return nil, "", fmt.Errorf("read %q: it has version %q, this program reads %s: %w", path, c.Version, schemaVersion, errdefs.ErrDataLoss)
	}
	return c, sum, nil
}

// restored returns the copy for a database that is new; nil without one, or none that can be used.
func (d *DB) restored() *copied {
	c, _, err := readCopy(d.copyPath)
	switch {
	case err == nil:
		d.logger.Warn("image records restored from their copy", "file", d.copyPath,
			"images", len(c.State.Images), "tags", len(c.State.Tags), "granted", len(c.State.Grants))
		return c
	case !errors.Is(err, fs.ErrNotExist):
		d.logger.Error("image records are lost, and their copy failed to restore them: pull images again", "file", d.copyPath, "error", err)
	case d.lost:
		d.logger.Error("image records are lost, and they have no copy: pull images again", "file", d.copyPath)
	}
	return nil
}
