// Package store keeps what images consist of: blobs by digest, and the records
// that say which names lead to which images.
package store

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images/boltfile"
)

// schemaVersion changes when older programs could no longer read the records.
const schemaVersion = "1"

// saltSize is how long the salt is, in bytes.
const saltSize = 32

var (
	bucketMeta     = []byte("meta")
	bucketImages   = []byte("images")
	bucketTargets  = []byte("targets")
	bucketTags     = []byte("tags")
	bucketGrants   = []byte("grants")
	bucketHolders  = []byte("holders")
	bucketPrepared = []byte("prepared")
	keyVersion     = []byte("version")
	keySalt        = []byte("salt")
)

// DB holds the records durably: an Update that returned survives power loss.
type DB struct {
	bolt  *bolt.DB
	mu    sync.Mutex // one Update at a time
	state atomic.Pointer[State]
	salt  []byte

	// encoded are the records as the file holds them, for the copy. uncertain: a commit failed, so
	// that the file may hold what state and encoded lack, or the reverse. Both are guarded by mu.
	encoded   encoded
	uncertain bool

	logger   *slog.Logger
	copyPath string
	copySum  digest.Digest // of what the copy holds, "" if that is not known
	lost     bool          // a damaged database was put aside
}

// OpenDB opens or creates the records in a file. Records that are damaged are put aside; they, and
// those that are lost, are restored from their copy, which is a file beside them.
//
// # Errors
//
// A file that another process has open is an error after one second.
func OpenDB(path string, logger *slog.Logger) (*DB, error) {
	lost := false
	damaged := func() error { lost = true; return nil }
	if err := boltfile.Ensure(path, damaged, logger); err != nil {
		return nil, fmt.Errorf("open image records %q: %w", path, err)
	}
	d, err := openDB(path, lost, logger)
	if errdefs.IsDataLoss(err) {
		if err := boltfile.PutAside(path, err, logger); err != nil {
			return nil, fmt.Errorf("open image records %q: %w", path, err)
		}
		d, err = openDB(path, true, logger)
	}
	return d, err
}

func openDB(path string, lost bool, logger *slog.Logger) (d *DB, err error) {
	defer func() {
		if r := recover(); r != nil { // as bbolt does at what it does not understand
			err = fmt.Errorf("open image records %q: %v: %w", path, r, errdefs.ErrDataLoss)
		}
	}()
	b, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoStatistics: true})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open image records %q: another process has them open", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open image records %q: %w", path, err)
	}
	d = &DB{bolt: b, logger: logger, copyPath: copyPath(path), lost: lost}
	if err := errors.Join(durable.Sweep(filepath.Dir(path)), d.init()); err != nil {
		b.Close()
		if errors.Is(err, bolterrors.ErrIncompatibleValue) {
			err = fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
		}
		return nil, fmt.Errorf("open image records %q: %w", path, err)
	}
	return d, nil
}

func (d *DB) init() error {
	err := d.bolt.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return err
		}
		var from *copied
		if v := meta.Get(keyVersion); v == nil {
			from = d.restored()
			if err := meta.Put(keyVersion, []byte(schemaVersion)); err != nil {
				return err
			}
		} else if _, err := strconv.ParseUint(string(v), 10, 16); err != nil {
			return fmt.Errorf("version %q is not a number: %w", v, errdefs.ErrDataLoss)
		} else if string(v) != schemaVersion {
			return fmt.Errorf("they have version %s, this program reads %s", v, schemaVersion)
		}
		if d.salt = bytes.Clone(meta.Get(keySalt)); d.salt == nil {
			if d.salt = make([]byte, saltSize); from != nil {
				d.salt = from.Salt
			} else {
				rand.Read(d.salt) // never fails
			}
			if err := meta.Put(keySalt, d.salt); err != nil {
				return err
			}
		}
		for _, k := range kinds() {
			if _, err := tx.CreateBucketIfNotExists(k.bucket); err != nil {
				return err
			}
		}
		if from != nil {
			return fill(tx, from.State)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.reload(); err != nil {
		return err
	}
	if _, d.copySum, err = readCopy(d.copyPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.logger.Warn("failed to read the copy of image records, it is rewritten", "file", d.copyPath, "error", err)
	}
	d.writeCopy()
	return nil
}

// Close closes the file.
func (d *DB) Close() error { return d.bolt.Close() }

// Salt is a random value of this store, for hashes that mean nothing elsewhere.
func (d *DB) Salt() []byte { return d.salt }

// State returns the records as of the last Update. It is not to be changed.
func (d *DB) State() *State { return d.state.Load() }

// reload reads all records.
func (d *DB) reload() error {
	var s *State
	err := d.bolt.View(func(tx *bolt.Tx) (err error) {
		s, err = load(tx)
		return err
	})
	if err != nil {
		return err
	}
	if d.encoded, err = encode(s); err != nil {
		return err
	}
	d.state.Store(s)
	d.uncertain = false
	return nil
}

// Update changes the records through fn, all or nothing. It reads and writes the records that fn
// changes, and no others; where fn changes none, it writes nothing.
func (d *DB) Update(fn func(*Tx) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uncertain {
		if err := d.reload(); err != nil {
			return err
		}
	}
	tx := newTx(d.State())
	if err := fn(tx); err != nil {
		return err
	}
	changes, err := tx.changes(d.encoded)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		if d.copySum == "" { // the disk was full, or failed
			d.writeCopy()
		}
		return nil
	}
	d.uncertain = true // until it is known what the file holds
	err = d.bolt.Update(func(b *bolt.Tx) error {
		for _, c := range changes {
			if err := c.write(b); err != nil {
				return err
			}
		}
		d.encoded.apply(changes)
		d.writeCopy()
		return nil
	})
	if err != nil {
		return err
	}
	d.uncertain = false
	d.state.Store(tx.State)
	return nil
}

// Glance returns the records in a file without opening it: another process may have them open.
//
// # Errors
//
// os.ErrNotExist if there is no such file.
func Glance(path string) (*State, error) {
	var s *State
	err := boltfile.Glance(path, func(copied string) error {
		b, err := bolt.Open(copied, 0, &bolt.Options{ReadOnly: true, NoStatistics: true})
		if err != nil {
			return err
		}
		defer b.Close()
		return b.View(func(tx *bolt.Tx) error {
			if s = newState(); tx.Bucket(bucketMeta) == nil {
				return nil // it has just been made
			}
			s, err = load(tx)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read image records %q: %w", path, err)
	}
	return s, nil
}
