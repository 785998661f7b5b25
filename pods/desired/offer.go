package desired

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// mostBytes bounds all loaded files together.
const mostBytes = 256 << 20

// content is what was read of a file.
type content struct {
	data   []byte
	folder uint64 // the inode of its folder
}

// offer takes the content of a file as a whole, or refuses it as a whole. It says whether the file
// is to be read again although it does not change, since the cause of the refusal may pass.
func (b *book) offer(path string, c content) (again bool) {
	sum := sha256.Sum256(c.data)
	hash := hex.EncodeToString(sum[:])
	if b.same(path, hash) {
		return false
	}
	objects, notes, err := b.options.parse(path, c.data, manifest.Options{IgnoreKinds: b.options.IgnoreKinds})
	if err != nil {
		b.refuse(path, err)
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.file(path)
	waits, err := b.admit(f, objects, int64(len(c.data)))
	b.wait(f, waits, objects, err)
	if err != nil {
		b.refuseLocked(f, err)
		return false
	}
	v := &version{hash: hash, size: int64(len(c.data)), taken: time.Now(), folder: c.folder, entries: b.entries(objects, fileSource(path)), notes: shortNotes(path, notes)}
	if f.good != nil && f.good.hash == hash && sameKeys(f.good.entries, v.entries) {
		// The bytes that were accepted in an earlier run: what another release of the program would
		// make of them does not replace what runs.
		f.good.notes = v.notes
		b.loaded(f, true)
		return false
	}
	if err := b.record(path, v); err != nil {
		full := durable.Full(err)
		if !full || f.full != hash { // or it is told again with each attempt
			b.refuseLocked(f, space.Explain(b.options.Store, err))
		}
		if full {
			f.full = hash
		}
		return true
	}
	b.take(f, v)
	b.loaded(f, false)
	b.logger.Info("manifest loaded", "file", path, "objects", len(v.entries), "hash", hash)
	return false
}

func fileSource(path string) cycle.Source { return cycle.Source{Kind: "file", File: path} }

// same says whether a file is loaded from the very same bytes.
func (b *book) same(path, hash string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[path]
	return f != nil && f.good != nil && f.good.hash == hash && f.status == Loaded
}

// file returns the state of a file, made if it has none.
func (b *book) file(path string) *file {
	f := b.files[path]
	if f == nil {
		f = &file{path: path}
		b.files[path] = f
	}
	return f
}

// refuse notes that a file's content is not taken. Its last good version stays.
func (b *book) refuse(path string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.file(path)
	f.waits, f.present = nil, nil
	b.refuseLocked(f, err)
}

// wait notes the objects for which a file's content waits, if err says that it does, and has files
// read again that wait for what this one no longer has.
func (b *book) wait(f *file, waits []manifest.Key, objects []manifest.Object, err error) {
	var present []manifest.Key
	if errdefs.IsAlreadyExists(err) {
		for _, o := range objects {
			present = append(present, o.Key)
		}
	}
	same := slices.Equal(present, f.present) // or two that wait have each other read for ever
	f.waits, f.present = waits, present
	if f.good == nil || present == nil || same {
		return
	}
	var left []manifest.Key
	for _, e := range f.good.entries {
		if f.left(e.Key) {
			left = append(left, e.Key)
		}
	}
	b.free(left)
}

func (b *book) refuseLocked(f *file, err error) {
	f.full = ""
	message := reason(f.path, err)
	if f.status == Refused && f.message == message {
		return
	}
	f.status, f.message, f.since = Refused, message, time.Now()
	b.dirty = true
	b.tell(f, true)
	b.logger.Warn("failed to load manifest", "file", f.path, "last_good_version", f.good != nil, "error", err)
}

// loaded notes that a file's good version is its present content, and whether it was before.
func (b *book) loaded(f *file, same bool) {
	f.status, f.message, f.since, f.full, f.waits, f.present = Loaded, "", f.good.taken, "", nil, nil
	b.dirty = true
	b.tell(f, same)
}

// take makes a recorded version that in force.
func (b *book) take(f *file, v *version) {
	keep := map[manifest.Key]bool{}
	for _, e := range v.entries {
		keep[e.Key] = true
	}
	freed := b.disown(f, keep)
	if f.good != nil {
		b.bytes -= f.good.size
	}
	f.good, f.missing = v, false
	b.bytes += v.size
	for _, e := range v.entries {
		if before := b.owners[e.Key]; before != nil && before != f {
			// It is missing, and this is its content under another name, or its new content is
			// without the object. If it comes back it is judged anew.
			before.good.hash = ""
			before.good.entries = slices.DeleteFunc(slices.Clone(before.good.entries), func(old Entry) bool { return old.Key == e.Key })
		}
		b.owners[e.Key] = f
	}
	b.free(freed)
}

// entries are a file's or an apply's objects as entries. What was there in the same form before
// stays with the time at which it was seen, and a pull policy that was a default stays (IM1).
func (b *book) entries(objects []manifest.Object, source cycle.Source) []Entry {
	out := make([]Entry, 0, len(objects))
	now := time.Now()
	for _, o := range objects {
		before, ok := b.current(o.Key)
		if ok {
			o = o.KeepPullPolicies(before.Pod())
		}
		e := Entry{Object: o, Source: source, Seen: now}
		e.Source.Hash = o.Hash()
		if ok && before.Source.Hash == e.Source.Hash {
			e.Seen, e.Value = before.Seen, before.Value
		}
		out = append(out, e)
	}
	return out
}

// admit says whether the objects of a file may become its content, and if others have some of
// them, which those are. The error is of class ErrAlreadyExists if that is all that is in the way.
func (b *book) admit(f *file, objects []manifest.Object, size int64) (waits []manifest.Key, err error) {
	var stands error
	for _, o := range objects {
		if where := b.elsewhere(f, o.Key); where != "" {
			waits = append(waits, o.Key)
			if stands == nil {
				stands = fmt.Errorf("%s: %s: %w", o.Key, where, errdefs.ErrAlreadyExists)
			}
			continue
		}
		if old, ok := b.current(o.Key); ok && err == nil {
			err = edit(old.Object, o)
		}
	}
	if err = cmp.Or(err, stands); err != nil {
		return waits, err
	}
	all := b.bytes + size
	if f.good != nil {
		all -= f.good.size
	}
	if all > mostBytes {
		return nil, fmt.Errorf("all manifests together are longer than %d bytes: %w", int64(mostBytes), errdefs.ErrResourceExhausted)
	}
	return nil, nil
}

// elsewhere says where an object stands, if that is not the file, and not one that is missing or
// whose new content is without it.
func (b *book) elsewhere(f *file, key manifest.Key) string {
	if _, ok := b.applied[key]; ok {
		return "was applied already: delete it there first"
	}
	other := b.owners[key]
	switch {
	case other == nil, other == f, other.missing, other.left(key):
		return ""
	case filepath.Dir(other.path) == filepath.Dir(f.path):
		return "stands in " + filepath.Base(other.path) + " already"
	}
	return "stands in " + other.path + " already"
}

// edit refuses edits that Kubernetes refuses: of an immutable ConfigMap or Secret, and of a class's
// handler.
func edit(old, new manifest.Object) error {
	fixed := false
	switch was := old.Value.(type) {
	case *corev1.ConfigMap:
		is, ok := new.Value.(*corev1.ConfigMap)
		fixed = ok && value(was.Immutable) && (!value(is.Immutable) ||
			!equality.Semantic.DeepEqual(was.Data, is.Data) || !equality.Semantic.DeepEqual(was.BinaryData, is.BinaryData))
	case *corev1.Secret:
		is, ok := new.Value.(*corev1.Secret)
		fixed = ok && value(was.Immutable) && (!value(is.Immutable) || !equality.Semantic.DeepEqual(was.Data, is.Data))
	case *nodev1.RuntimeClass:
		if is, ok := new.Value.(*nodev1.RuntimeClass); ok {
			return runtimeclass.CheckReload([]nodev1.RuntimeClass{*was}, []nodev1.RuntimeClass{*is})
		}
	}
	if fixed {
		return fmt.Errorf("%s: it is immutable: remove it, or give the new one another name: %w", new.Key, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func sameKeys(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool { return x.Key == y.Key })
}

// record writes a version of a file durably, as its last good one.
func (b *book) record(path string, v *version) error {
	data, err := encodeVersion(path, v)
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(b.manifests(), recordName(path)), data, 0o600)
}
