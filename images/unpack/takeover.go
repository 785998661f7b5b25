package unpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images/boltfile"
)

// takeOver writes the records of roots that metadata.db holds into their folders, and deletes it:
// earlier programs kept it. Layers have had records in their folders then, too. A damaged file is
// put aside, and then the folders of roots are damaged.
func (s *records) takeOver() error {
	file := filepath.Join(s.root, "metadata.db")
	if err := boltfile.Ensure(file, nil, s.logger); err != nil {
		return err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("take over %q: %w", file, err)
	}
	err = errors.Join(db.View(s.takeRoots), db.Close())
	if err == nil {
		err = s.Sync()
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(filepath.Join(s.root, "boot")), os.Remove(file))
	}
	if err != nil {
		return fmt.Errorf("take over %q: %w", file, err)
	}
	return nil
}

// takeRoots writes the records of roots, in the format of containerd's storage of snapshots.
func (s *records) takeRoots(tx *bolt.Tx) error {
	all := tx.Bucket([]byte("v1"))
	if all != nil {
		all = all.Bucket([]byte("snapshots"))
	}
	if all == nil {
		return nil
	}
	return all.ForEachBucket(func(name []byte) error {
		key, isRoot := strings.CutPrefix(string(name), "root/")
		if !isRoot {
			return nil
		}
		b := all.Bucket(name)
		id, _ := binary.Uvarint(b.Get([]byte("id")))
		const view = "\x01"
		r := record{
			Version: recordVersion, Key: key, View: string(b.Get([]byte("kind"))) == view,
			Parent: digest.Digest(b.Get([]byte("parent"))), Labels: map[string]string{},
		}
		if labels := b.Bucket([]byte("labels")); labels != nil {
			if err := labels.ForEach(func(k, v []byte) error { r.Labels[string(k)] = string(v); return nil }); err != nil {
				return err
			}
		}
		err := r.write(s.dir(folder{name: fmt.Sprint(id)}), durable.Replace)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
