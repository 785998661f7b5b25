package supportbundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
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

// Open implements fs.FS.
func (t tree) Open(name string) (fs.File, error) {
	f, err := regular.OpenIn(t.dir, name)
	if t.follow {
		f, err = regular.Open(filepath.Join(t.dir, name))
	}
	if err != nil {
		return nil, err // not f, which would be a file that is nil
	}
	return f, nil
}

// ReadDir implements fs.ReadDirFS, for fs.Glob. A missing folder is empty.
func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := t.list(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return nil, nil
	case err != nil:
		t.fault(filepath.Join(t.dir, name), fmt.Errorf("%w: %w", errUnknown, err))
	case len(entries) == maxEntries:
		t.fault(filepath.Join(t.dir, name), fmt.Errorf("%w: only %d names are looked at", errUnknown, maxEntries))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func (t tree) list(name string) ([]fs.DirEntry, error) {
	const how = os.O_RDONLY | unix.O_DIRECTORY // a pipe is refused, not waited for
	var d *os.File
	if t.follow {
		var err error
		if d, err = os.OpenFile(filepath.Join(t.dir, name), how, 0); err != nil {
			return nil, err
		}
	} else {
		root, err := os.OpenRoot(t.dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		if d, err = root.OpenFile(name, how, 0); err != nil {
			return nil, err
		}
	}
	defer d.Close()
	entries, err := d.ReadDir(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// files are the names of the regular files that match a pattern.
func (t tree) files(pattern string) []string {
	names, _ := fs.Glob(t, pattern) // the pattern is right
	return slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Lstat(filepath.Join(t.dir, name))
		if err != nil || info.Mode().IsRegular() || t.follow && info.Mode()&fs.ModeSymlink != 0 {
			return false
		}
		if !info.IsDir() {
			t.fault(filepath.Join(t.dir, name), errors.New("is not a regular file"))
		}
		return true
	})
}

// source is a group of files with documents.
type source struct {
	tree
	pattern string
	as      string // folder in the bundle
	decode  func(name string, data []byte) ([]any, error)
	keys    map[string]bool // nil: only what must not be shown is taken from them
	most    int64
}

func (n Node) sources(fault func(string, error)) []source {
	root, state := tree{dir: n.Root, fault: fault}, tree{dir: n.State, fault: fault}
	all := []source{
		{root, "state/sandboxes/*", "records/", decodeJSON, recordKeys, maxDocument},
		{root, "state/containers/*", "records/", decodeJSON, recordKeys, maxDocument},
		{root, "pods/*/pod.json", "records/", decodeLast, recordKeys, maxDocument},
		{root, "pods/manifests/*", "records/", decodeJSON, recordKeys, maxDocument},
		{root, "pods/applied/*", "records/", decodeJSON, recordKeys, maxDocument},
		{root, "pods/broken/*", "records/", decodeLast, recordKeys, maxDocument},
		{state, "pods/events", "records/", decodeJSON, recordKeys, maxDocument},
	}
	outside := func(dir, pattern, as string, decode func(string, []byte) ([]any, error), keys map[string]bool, most int64) {
		if dir != "" {
			all = append(all, source{tree{dir, true, fault}, pattern, as, decode, keys, most})
		}
	}
	outside(filepath.Dir(n.ConfigFile), literal(filepath.Base(n.ConfigFile)), "config/", decodeTOML, n.ConfigKeys, maxTOML)
	outside(n.HostsDir, "*/hosts.toml", "config/hosts/", decodeTOML, hostsKeys, maxTOML)
	if n.Credentials != "" {
		outside(filepath.Dir(n.Credentials), literal(filepath.Base(n.Credentials)), "", decodeJSON, nil, maxDocument)
	}
	for _, dir := range n.Manifests {
		for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
			outside(dir, pattern, "manifests"+filepath.Clean("/"+dir)+"/", decodeYAML, recordKeys, maxDocument)
		}
	}
	return all
}

// literal is a name as a pattern.
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// read decodes a file, and returns what is shown of it and how many values are not. All words of a
// file that is no document are secrets.
func (s source) read(file string, secrets *secrets) (docs []any, removed int, err error) {
	f, err := s.Open(file)
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
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return strings.TrimSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error())
}

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

// decodeLast decodes the record of a pod that counts.
func decodeLast(name string, data []byte) ([]any, error) { return decodeJSON(name, records.Last(data)) }

func decodeTOML(_ string, data []byte) ([]any, error) {
	doc := map[string]any{}
	err := toml.Unmarshal(data, &doc)
	return []any{doc}, err
}

func decodeYAML(name string, data []byte) ([]any, error) {
	if path.Ext(name) == ".json" {
		if docs, err := decodeJSON(name, data); err == nil {
			return docs, nil
		}
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
