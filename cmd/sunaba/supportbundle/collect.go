package supportbundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"

	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

const (
	maxDocument = 16 << 20 // bytes of a file that is decoded
	maxTOML     = 1 << 20  // the same of TOML, whose decoder has no limit of depth
	maxEntries  = 1 << 16  // of a folder
)

// tree is a folder whose files are read. Links lead nowhere in it, unless follow is set: those of
// the server's folders are no records, those of an administrator's are.
type tree struct {
	dir    string
	follow bool
	fault  func(name string, err error)
}

func (t tree) open(name string) (*os.File, error) {
	if t.follow {
		return regular.Open(filepath.Join(t.dir, name))
	}
	return regular.OpenIn(t.dir, name)
}

// Open implements fs.FS.
func (t tree) Open(name string) (fs.File, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err // not f, which would be a file that is nil
	}
	return f, nil
}

// ReadDir implements fs.ReadDirFS, for fs.Glob. A missing folder is empty.
func (t tree) ReadDir(name string) (entries []fs.DirEntry, err error) {
	dir := filepath.Join(t.dir, name)
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0) // a pipe is refused, not waited for
	if err == nil {
		defer d.Close()
		entries, err = d.ReadDir(maxEntries)
	}
	if len(entries) == maxEntries {
		err = fmt.Errorf("only %d names are looked at", maxEntries)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		t.fault(dir, fmt.Errorf("%w: %w", errUnknown, err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// source is a group of files.
type source struct {
	tree
	pattern string
	as      string // folder in the bundle
	// How they are documents:
	decode decoder
	keys   map[string]bool // nil: only what must not be shown is taken from them
	most   int64
}

// files are the names of the regular files, without what is told to fault.
func (s source) files() []string {
	names, _ := fs.Glob(s.tree, s.pattern) // the pattern is right
	return slices.DeleteFunc(names, func(name string) bool {
		file := filepath.Join(s.dir, name)
		info, err := os.Lstat(file)
		if err != nil || info.Mode().IsRegular() || s.follow && info.Mode()&fs.ModeSymlink != 0 {
			return err == nil && s.as == "records/" && info.Size() == 0 // it waits for a record
		}
		if !info.IsDir() {
			s.fault(file, errors.New("is not a regular file"))
		}
		return true
	})
}

func (n Node) sources(fault func(string, error)) (all []source) {
	for _, pattern := range []string{"state/sandboxes/*", "state/containers/*", "pods/*/pod.json", "pods/manifests/*", "pods/applied/*", "pods/broken/*"} {
		all = append(all, source{tree{n.Root, false, fault}, pattern, "records/", decodeLast, recordKeys, maxDocument})
	}
	all = append(all, source{tree{n.State, false, fault}, "pods/events", "records/", decodeLast, recordKeys, maxDocument})
	one := func(file, as string, decode decoder, keys map[string]bool, most int64) {
		if file != "" {
			all = append(all, source{tree{filepath.Dir(file), true, fault}, literal.Replace(filepath.Base(file)), as, decode, keys, most})
		}
	}
	one(n.ConfigFile, "config/", decodeTOML, n.ConfigKeys, maxTOML)
	one(n.Credentials, "", decodeJSON, nil, maxDocument)
	if n.HostsDir != "" {
		all = append(all, source{tree{n.HostsDir, true, fault}, "*/hosts.toml", "config/hosts/", decodeTOML, hostsKeys, maxTOML})
	}
	for _, dir := range n.Manifests {
		for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
			all = append(all, source{tree{dir, true, fault}, pattern, "manifests" + filepath.Clean("/"+dir) + "/", decodeYAML, recordKeys, maxDocument})
		}
	}
	return all
}

// literal makes a pattern of a name.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// read decodes a file, and returns what is shown of it and how many values are not. All words of a
// file that is no document are secrets.
func (s source) read(file string, secrets *secrets) (docs []any, removed int, err error) {
	f, err := s.open(file)
	if err == nil {
		defer f.Close()
		var data []byte
		if data, err = regular.ReadAll(f, file, s.most); err == nil {
			if docs, err = s.decode(file, data); err != nil {
				secrets.raw(data)
				return nil, 0, errUndecoded
			}
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || f == nil && errdefs.IsInvalidArgument(err):
		return nil, 0, err
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", errUnknown, err)
	}
	r := &redactor{secrets: secrets, keys: s.keys}
	for i := range docs {
		docs[i] = r.document(docs[i])
	}
	return docs, r.removed, nil
}

// errUnknown says that it is not known what a file or folder has that must not be in texts.
var errUnknown = errors.New("cannot be read")

// errUndecoded stands for the error of a decoder, which may quote what it reads.
var errUndecoded = errors.New("cannot be decoded")

// reason is why something cannot be read, without any of what it holds.
func reason(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return strings.TrimSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error())
}

// decoder decodes a file, which may have several documents.
type decoder func(name string, data []byte) ([]any, error)

func decodeJSON(_ string, data []byte) ([]any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	return []any{doc}, nil
}

// decodeLast decodes a record, or the line of a pod's records that counts.
func decodeLast(name string, data []byte) ([]any, error) { return decodeJSON(name, records.Last(data)) }

func decodeTOML(_ string, data []byte) ([]any, error) {
	doc := map[string]any{}
	err := toml.Unmarshal(data, &doc)
	return []any{doc}, err
}

func decodeYAML(name string, data []byte) ([]any, error) {
	if docs, err := decodeJSON(name, data); err == nil {
		return docs, nil
	}
	var docs []any
	for _, d := range runtimeclass.Documents(name, data) {
		var doc any
		if err := goyaml.Unmarshal(d.Data, &doc); err != nil {
			return nil, err
		}
		docs = append(docs, textKeys(doc))
	}
	return docs, nil
}

// textKeys turns the objects of YAML into those of JSON.
func textKeys(v any) any {
	switch v := v.(type) {
	case map[any]any:
		m := map[string]any{}
		for k, one := range v {
			m[fmt.Sprint(k)] = textKeys(one)
		}
		return m
	case []any:
		for i := range v {
			v[i] = textKeys(v[i])
		}
	}
	return v
}
