package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// kind is one kind of record: a bucket of the database, and a field of the copy's State.
type kind struct {
	bucket []byte
	field  string
}

// kinds are all of them, in the order of State's fields.
func kinds() []kind {
	return []kind{
		{bucketImages, "Images"}, {bucketTargets, "Targets"}, {bucketTags, "Tags"},
		{bucketGrants, "Grants"}, {bucketHolders, "Holders"}, {bucketPrepared, "Prepared"},
	}
}

// load reads and decodes all records.
func load(tx *bolt.Tx) (*State, error) {
	s := newState()
	err := errors.Join(
		read(tx.Bucket(bucketImages), s.Images),
		read(tx.Bucket(bucketTargets), s.Targets),
		read(tx.Bucket(bucketTags), s.Tags),
		read(tx.Bucket(bucketGrants), s.Grants),
		read(tx.Bucket(bucketHolders), s.Holders),
		read(tx.Bucket(bucketPrepared), s.Prepared),
	)
	return s, err
}

func read[T any](b *bolt.Bucket, into map[string]T) error {
	return b.ForEach(func(k, v []byte) error {
		var record T
		if err := json.Unmarshal(v, &record); err != nil {
			return fmt.Errorf("read record %q: %w: %w", k, err, errdefs.ErrDataLoss)
		}
		into[string(k)] = record
		return nil
	})
}

// fill makes the database hold exactly the records of a state.
func fill(tx *bolt.Tx, s *State) error {
	all, err := encode(s)
	if err != nil {
		return err
	}
	for _, k := range kinds() {
		if err := tx.DeleteBucket(k.bucket); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
			return err
		}
		b, err := tx.CreateBucket(k.bucket)
		if err != nil {
			return err
		}
		for key, value := range all[k.field] {
			if err := b.Put([]byte(key), value); err != nil {
				return err
			}
		}
	}
	return nil
}

// encoded are records as the database and the copy hold them: by the field of State, then by key.
type encoded map[string]map[string][]byte

// encode encodes all records.
func encode(s *State) (encoded, error) {
	all := make(encoded)
	err := errors.Join(
		encodeKind(all, "Images", s.Images), encodeKind(all, "Targets", s.Targets), encodeKind(all, "Tags", s.Tags),
		encodeKind(all, "Grants", s.Grants), encodeKind(all, "Holders", s.Holders), encodeKind(all, "Prepared", s.Prepared),
	)
	return all, err
}

func encodeKind[T any](into encoded, field string, from map[string]T) error {
	into[field] = make(map[string][]byte, len(from))
	for key, record := range from {
		value, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("write record %q: %w", key, err)
		}
		into[field][key] = value
	}
	return nil
}

// apply makes e hold changes too.
func (e encoded) apply(changes []change) {
	for _, c := range changes {
		if c.value == nil {
			delete(e[c.kind.field], c.key)
		} else {
			e[c.kind.field][c.key] = c.value
		}
	}
}

// copy returns what the copy of the records holds after its first line: a copied, encoded.
func (e encoded) copy(salt []byte) ([]byte, error) {
	head, err := json.Marshal(copied{Version: schemaVersion, Salt: salt})
	if err != nil {
		return nil, err
	}
	head, isHead := bytes.CutSuffix(head, []byte("null}"))
	if !isHead {
		return nil, fmt.Errorf("%q does not end with the state", head)
	}
	var fields []string
	size := len(head)
	for _, k := range kinds() {
		fields = append(fields, k.field)
		for key, value := range e[k.field] {
			size += len(key) + len(value) + len(`"":,`)
		}
	}
	out := bytes.NewBuffer(make([]byte, 0, size+1<<10))
	out.Write(head)
	err = writeObject(out, fields, func(field string) error {
		records := e[field]
		return writeObject(out, slices.Sorted(maps.Keys(records)), func(key string) error {
			_, err := out.Write(records[key])
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// writeObject writes a JSON object; value writes the value of each key.
func writeObject(out *bytes.Buffer, keys []string, value func(key string) error) error {
	out.WriteByte('{')
	for i, key := range keys {
		name, err := json.Marshal(key)
		if err != nil {
			return err
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(name)
		out.WriteByte(':')
		if err := value(key); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}
