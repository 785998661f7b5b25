package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// mostApplied is how many objects may be applied.
const mostApplied = 10000

// Verb is what Apply did with an object, in kubectl's word.
type Verb string

// The verbs of Apply.
const (
	Created    Verb = "created"
	Configured Verb = "configured"
	Same       Verb = "unchanged"
)

// Applied is what Apply did with one object.
type Applied struct {
	manifest.Key
	Verb Verb
}

// Apply makes or changes the objects of a manifest, durably before it returns, and returns them
// with what is ignored in it. file names the manifest in errors and notes. namespace is that of objects that name none; if it is not "", an
// object that names another one is refused. All objects are checked before the first is written;
// if one cannot be written, the returned ones are. With dryRun nothing is written.
//
// # Errors
//
// Those of manifest.Parse; ErrInvalidArgument for a namespace and for data above 10 MiB;
// ErrFailedPrecondition for objects of a folder and for edits of what is immutable;
// ErrResourceExhausted for a full disk and too many objects.
func (s *Set) Apply(file string, data []byte, namespace string, dryRun bool) (done []Applied, notes []string, err error) {
	b := s.book
	objects, notes, err := b.read(file, data, namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("apply: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publishLocked()
	entries := b.entries(objects, cycle.Source{Kind: "api"})
	if err := b.appliable(entries); err != nil {
		return nil, nil, fmt.Errorf("apply: %w", err)
	}
	for _, e := range entries {
		verb := Created
		if before, ok := b.applied[e.Key]; ok {
			verb = Configured
			if before.Source.Hash == e.Source.Hash {
				verb = Same
			}
		}
		if verb != Same && !dryRun {
			if err := b.store(e); err != nil {
				return done, notes, fmt.Errorf("apply %s: %w", e.Key, space.Explain(b.options.Store, err))
			}
			b.logger.Info("object applied", "object", e.Key.String(), "verb", string(verb))
		}
		done = append(done, Applied{e.Key, verb})
	}
	return done, notes, nil
}

// Delete deletes an applied object, durably before it returns.
//
// # Errors
//
// ErrNotFound; ErrFailedPrecondition for an object of a folder; else those of the file system.
func (s *Set) Delete(key manifest.Key) error {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publishLocked()
	if f := b.owners[key]; f != nil {
		return stands(key, f)
	}
	if _, ok := b.applied[key]; !ok {
		return fmt.Errorf("%s: %w", key, errdefs.ErrNotFound)
	}
	if err := os.Remove(b.appliedPath(key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	delete(b.applied, key)
	b.dirty = true
	b.logger.Info("applied object deleted", "object", key.String())
	b.free([]manifest.Key{key})
	if err := durable.Sync(b.appliedDir()); err != nil {
		return fmt.Errorf("delete %s: sync %q: %w", key, b.appliedDir(), err)
	}
	return nil
}

// stands is the error for who would change an object of a folder otherwise than there.
func stands(key manifest.Key, f *file) error {
	return fmt.Errorf("%s stands in %s: edit or remove it there: %w", key, f.path, errdefs.ErrFailedPrecondition)
}

// read parses what is applied.
func (b *book) read(file string, data []byte, namespace string) ([]manifest.Object, []string, error) {
	if len(data) > manifest.MaxFile {
		return nil, nil, fmt.Errorf("the manifest is longer than %d bytes: %w", manifest.MaxFile, errdefs.ErrInvalidArgument)
	}
	if namespace != "" {
		if errs := validation.IsDNS1123Label(namespace); len(errs) > 0 {
			return nil, nil, fmt.Errorf("namespace %q: %s: %w", namespace, strings.Join(errs, "; "), errdefs.ErrInvalidArgument)
		}
	}
	objects, notes, err := b.options.parse(file, data, manifest.Options{IgnoreKinds: b.options.IgnoreKinds, Namespace: namespace})
	for i := range objects {
		objects[i].File = "" // it is not kept
	}
	if err != nil || namespace == "" {
		return objects, notes, err
	}
	for _, o := range objects {
		if o.Namespace != "" && o.Namespace != namespace { // a class has none
			return nil, nil, fmt.Errorf("%s: metadata.namespace: the namespace from the provided object %q does not match the namespace %q: %w",
				o.Key, o.Namespace, namespace, errdefs.ErrInvalidArgument)
		}
	}
	return objects, notes, nil
}

// appliable says whether these objects may be applied.
func (b *book) appliable(entries []Entry) error {
	more := 0
	for _, e := range entries {
		if f := b.owners[e.Key]; f != nil {
			return stands(e.Key, f)
		}
		old, ok := b.applied[e.Key]
		if !ok {
			more++
		} else if err := edit(old.Object, e.Object); err != nil {
			return err
		}
	}
	if len(b.applied)+more > mostApplied {
		return fmt.Errorf("more than %d objects are applied: %w", mostApplied, errdefs.ErrResourceExhausted)
	}
	return nil
}

// store writes an applied object and takes it.
func (b *book) store(e Entry) error {
	o, err := encodeEntry(e)
	if err != nil {
		return err
	}
	data, err := json.Marshal(appliedRecord{Version: recordVersion, Object: o})
	if err != nil {
		return err
	}
	if err := durable.Write(b.appliedPath(e.Key), data, 0o600); err != nil {
		return err
	}
	b.applied[e.Key] = e
	b.dirty = true
	return nil
}

func (b *book) readApplied() error {
	entries, err := readRecords(b.appliedDir(), decodeApplied, b.setAside)
	if err != nil {
		return err
	}
	for _, e := range entries {
		b.applied[e.Key] = e
	}
	return nil
}

func decodeApplied(name string, data []byte) (Entry, error) {
	var r appliedRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return Entry{}, err
	}
	if err := checkVersion(r.Version); err != nil {
		return Entry{}, err
	}
	e, err := decodeEntry(r.Object, "", cycle.Source{Kind: "api"})
	if err == nil && appliedName(e.Key) != name {
		err = fmt.Errorf("is the record of %s under another name: %w", e.Key, errdefs.ErrInvalidArgument)
	}
	return e, err
}

func (b *book) appliedPath(key manifest.Key) string {
	return filepath.Join(b.appliedDir(), appliedName(key))
}

// appliedName is the name of the record of an applied object: KIND_NAMESPACE_NAME.json. The parts
// hold no underscore, so that no two objects share a name; one that is too long for a file is
// hashed.
func appliedName(key manifest.Key) string {
	name := strings.ToLower(key.Kind) + "_" + key.Namespace + "_" + key.Name
	if len(name) > 200 || strings.ContainsAny(name, "/\x00") {
		sum := sha256.Sum256([]byte(name))
		name = strings.ToLower(key.Kind) + "_" + hex.EncodeToString(sum[:])
	}
	return name + ".json"
}
