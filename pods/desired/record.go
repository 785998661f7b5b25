package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// recordVersion is the format of the records that this package writes and reads.
const recordVersion = 1

// longestRecord bounds a record that is read, in bytes. JSON may be several times as long as the
// YAML that it is of.
const longestRecord = 128 << 20

// versionRecord is the last good version of a file, on disk. Its objects have their defaults.
type versionRecord struct {
	Version int            `json:"version"`
	File    string         `json:"file"`
	Hash    string         `json:"hash"`
	Size    int64          `json:"size"`
	Taken   time.Time      `json:"taken"`
	Folder  uint64         `json:"folder,omitempty"`
	Objects []objectRecord `json:"objects"`
	Notes   []string       `json:"notes,omitempty"`
}

// appliedRecord is one applied object, on disk.
type appliedRecord struct {
	Version int          `json:"version"`
	Object  objectRecord `json:"object"`
}

type objectRecord struct {
	Kind     string    `json:"kind"`
	Document int       `json:"document,omitempty"`
	Line     int       `json:"line,omitempty"`
	Seen     time.Time `json:"seen"`
	Hash     string    `json:"hash"`
	// Defaulted are manifest.Object's.
	Defaulted []string        `json:"defaulted,omitempty"`
	Value     json.RawMessage `json:"value"`
}

// recordName is the name of the record of the file at path.
func recordName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

func encodeVersion(path string, v *version) ([]byte, error) {
	r := versionRecord{Version: recordVersion, File: path, Hash: v.hash, Size: v.size, Taken: v.taken, Folder: v.folder, Notes: v.notes}
	for _, e := range v.entries {
		o, err := encodeEntry(e)
		if err != nil {
			return nil, err
		}
		r.Objects = append(r.Objects, o)
	}
	return json.Marshal(r)
}

// decodeVersion reads the record of a file, whose state is then Refused until the file was read:
// its content is not known.
func decodeVersion(name string, data []byte) (*file, error) {
	var r versionRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if err := checkVersion(r.Version); err != nil {
		return nil, err
	}
	if recordName(r.File) != name {
		return nil, fmt.Errorf("is the record of %q under another name: %w", r.File, errdefs.ErrInvalidArgument)
	}
	v := &version{hash: r.Hash, size: r.Size, taken: r.Taken, folder: r.Folder, notes: r.Notes}
	for _, o := range r.Objects {
		e, err := decodeEntry(o, r.File, fileSource(r.File))
		if err != nil {
			return nil, err
		}
		v.entries = append(v.entries, e)
	}
	return &file{path: r.File, good: v, status: Refused, since: r.Taken, message: "was not read yet"}, nil
}

func encodeEntry(e Entry) (objectRecord, error) {
	data, err := json.Marshal(e.Value)
	if err != nil {
		return objectRecord{}, fmt.Errorf("record %s: %w", e.Key, err)
	}
	return objectRecord{
		Kind: e.Kind, Document: e.Document, Line: e.Line, Seen: e.Seen, Hash: e.Source.Hash, Defaulted: e.Defaulted, Value: data,
	}, nil
}

func decodeEntry(o objectRecord, path string, source cycle.Source) (Entry, error) {
	var into metav1.Object
	switch o.Kind {
	case manifest.KindPod:
		into = &corev1.Pod{}
	case manifest.KindConfigMap:
		into = &corev1.ConfigMap{}
	case manifest.KindSecret:
		into = &corev1.Secret{}
	case manifest.KindRuntimeClass:
		into = &nodev1.RuntimeClass{}
	case manifest.KindClaim:
		into = &corev1.PersistentVolumeClaim{}
	default:
		return Entry{}, fmt.Errorf("kind %q: %w", o.Kind, errdefs.ErrInvalidArgument)
	}
	if err := json.Unmarshal(o.Value, into); err != nil {
		return Entry{}, err
	}
	key := manifest.Key{Kind: o.Kind, Namespace: into.GetNamespace(), Name: into.GetName()}
	if key.Name == "" {
		return Entry{}, fmt.Errorf("%s without a name: %w", o.Kind, errdefs.ErrInvalidArgument)
	}
	source.Hash = o.Hash
	return Entry{
		Object: manifest.Object{Key: key, File: path, Document: o.Document, Line: o.Line, Value: into, Defaulted: o.Defaulted},
		Source: source, Seen: o.Seen,
	}, nil
}

// checkVersion refuses records of a newer program, with ErrFailedPrecondition.
func checkVersion(version int) error {
	switch {
	case version > recordVersion:
		return fmt.Errorf("its format is %d, of a newer version of the program, and this one reads up to %d: %w",
			version, recordVersion, errdefs.ErrFailedPrecondition)
	case version < 1:
		return fmt.Errorf("its format is %d: %w", version, errdefs.ErrInvalidArgument)
	}
	return nil
}

// readRecords decodes the records in a folder. broken is called for each that cannot be read;
// only one of a newer format is an error.
func readRecords[T any](dir string, decode func(name string, data []byte) (T, error), broken func(path string, err error)) ([]T, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []T
	for _, entry := range names {
		if strings.HasPrefix(entry.Name(), ".") || durable.Unfinished(entry.Name()) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		var record T
		data, err := regular.Read(path, longestRecord)
		if err == nil {
			record, err = decode(entry.Name(), data)
		}
		switch {
		case err == nil:
			out = append(out, record)
		case errdefs.IsFailedPrecondition(err):
			return nil, fmt.Errorf("read %q: %w", path, err)
		case errors.Is(err, fs.ErrNotExist):
		default:
			broken(path, err)
		}
	}
	return out, nil
}
