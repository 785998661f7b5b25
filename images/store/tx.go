package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	bolt "go.etcd.io/bbolt"
)

// Tx is a change of records that is in progress: its State is the one that will be. What is changed
// is copied before, so that the State from before stays as it is; records are replaced, never
// written into.
type Tx struct {
	*State

	images   edit[Image]
	targets  edit[Target]
	tags     edit[Tag]
	grants   edit[Grant]
	holders  edit[[]string]
	prepared edit[bool]
}

func newTx(from *State) *Tx {
	s := *from
	k := kinds()
	return &Tx{
		State:  &s,
		images: edit[Image]{kind: k[0], records: &s.Images}, targets: edit[Target]{kind: k[1], records: &s.Targets},
		tags: edit[Tag]{kind: k[2], records: &s.Tags}, grants: edit[Grant]{kind: k[3], records: &s.Grants},
		holders: edit[[]string]{kind: k[4], records: &s.Holders}, prepared: edit[bool]{kind: k[5], records: &s.Prepared},
	}
}

// changes are the records that differ from those before, encoded.
func (tx *Tx) changes(before encoded) (all []change, err error) {
	err = errors.Join(
		tx.images.addTo(&all, before), tx.targets.addTo(&all, before), tx.tags.addTo(&all, before),
		tx.grants.addTo(&all, before), tx.holders.addTo(&all, before), tx.prepared.addTo(&all, before),
	)
	return all, err
}

// edit is what a transaction changes of one kind of records.
type edit[T any] struct {
	kind
	records *map[string]T
	changed map[string]bool // keys; nil while records is the map from before
}

func (e *edit[T]) put(key string, record T) {
	e.touch(key)
	(*e.records)[key] = record
}

func (e *edit[T]) remove(key string) {
	if _, ok := (*e.records)[key]; ok {
		e.touch(key)
		delete(*e.records, key)
	}
}

func (e *edit[T]) touch(key string) {
	if e.changed == nil {
		*e.records, e.changed = maps.Clone(*e.records), make(map[string]bool)
	}
	e.changed[key] = true
}

func (e *edit[T]) addTo(all *[]change, before encoded) error {
	for key := range e.changed {
		c := change{kind: e.kind, key: key}
		if record, ok := (*e.records)[key]; ok {
			var err error
			if c.value, err = json.Marshal(record); err != nil {
				return fmt.Errorf("write record %q: %w", key, err)
			}
		}
		if !bytes.Equal(before[e.field][key], c.value) {
			*all = append(*all, c)
		}
	}
	return nil
}

// change is a record as it will be; its value is nil if there will be none.
type change struct {
	kind
	key   string
	value []byte
}

// write makes the database hold the record.
func (c change) write(tx *bolt.Tx) error {
	if c.value == nil {
		return tx.Bucket(c.bucket).Delete([]byte(c.key))
	}
	return tx.Bucket(c.bucket).Put([]byte(c.key), c.value)
}
