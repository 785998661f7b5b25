// Package supportbundle writes what helps to find a fault of a node into one archive, without what
// may be secret.
//
// Documents (records, manifests, the configuration) are decoded, and of their values only those are
// shown whose keys are known: see redactor. What is removed from them is removed from texts, such
// as logs, as far as it can be found in them: see secrets.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	folder    = "sunaba-support/" // where everything stands in the archive
	maxPart   = 8 << 20           // bytes of one file
	maxBundle = 64 << 20          // bytes of all files together
	maxFiles  = 20000
	partTime  = 30 * time.Second // for one file; what takes longer is left out
)

// Node is the node that a bundle is about.
type Node struct {
	Root, State, Socket string
	ConfigFile          string
	ConfigKeys          map[string]bool // those whose values are shown
	// Unknown is why it is not known which files have secrets, "" if it is: no texts are shown then.
	Unknown string

	Credentials, HostsDir, PodLogs string   // "" for none
	Manifests                      []string // folders

	Shim     func() (string, error) // the binary
	Runtimes []string               // OCI runtimes
	Check    func(context.Context, io.Writer) error

	Unit, LogFile string // where the server's log is: LogFile, else the journal of Unit
	WithPodLogs   bool

	within time.Duration // partTime, except in tests
}

// item is a file of the bundle. write returns how many values it left out.
type item struct {
	name  string
	text  bool // what it writes may have secrets
	write func(context.Context, io.Writer) (removed int, err error)
}

// bundle is an archive that is being written.
type bundle struct {
	node    Node
	secrets *secrets
	tar     *tar.Writer
	room    int
	files   int
	listed  strings.Builder // the files
	missing strings.Builder
}

// write writes the archive and returns its index.
//
// # Errors
//
// Those of out. What cannot be read is in the index.
func (n Node) write(ctx context.Context, out io.Writer) (index string, err error) {
	n.within = cmp.Or(n.within, partTime)
	compressed := gzip.NewWriter(out)
	b := &bundle{node: n, tar: tar.NewWriter(compressed), room: maxBundle}
	b.secrets = n.learn(ctx)
	if b.secrets.blind != "" {
		b.fault("texts and logs", errors.New(b.secrets.blind))
	}
	for _, i := range b.items() {
		if err := b.make(ctx, i); err != nil {
			return "", err
		}
	}
	index = "BYTES REMOVED FILE\n" + b.listed.String() + b.missing.String()
	if err := b.add("index.txt", []byte(index)); err != nil {
		return "", err
	}
	return index, errors.Join(b.tar.Close(), compressed.Close())
}

// items are all files, in the order in which they have room.
func (b *bundle) items() []item {
	n := b.node
	all := []item{
		{"versions.txt", false, n.writeVersions},
		{"check.txt", true, func(ctx context.Context, w io.Writer) (int, error) { return 0, n.Check(ctx, w) }},
		{"server.txt", true, n.writeServer},
	}
	for _, s := range n.sources(b.fault) {
		for _, name := range s.files() {
			if s.keys == nil {
				break
			}
			all = append(all, item{s.as + strings.TrimSuffix(name, ".json") + ".json", false, func(_ context.Context, w io.Writer) (int, error) {
				docs, removed, err := s.read(name, b.secrets)
				return removed, errors.Join(err, encode(w, docs))
			}})
		}
	}
	return append(append(all, item{"logs/server.log", true, n.writeLog}), n.logs(b.fault)...)
}

// timed runs f with a time limit; ok is false if it did not return. It is left behind then.
func timed[T any](ctx context.Context, limit time.Duration, f func(context.Context) T) (result T, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- f(ctx) }()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
		return result, false
	}
}

// learn reads all documents for what must not be in texts.
func (n Node) learn(ctx context.Context) *secrets {
	s, ok := timed(ctx, n.within, func(ctx context.Context) *secrets {
		s := newSecrets(n.Unknown)
		note := func(name string, err error) {
			if errors.Is(err, errUnknown) && s.blind == "" {
				s.blind = fmt.Sprintf("%q may have values that must not be in them: %s", name, reason(err))
			}
		}
		for _, source := range n.sources(note) {
			for _, name := range source.files() {
				if _, _, err := source.read(name, s); err != nil {
					note(filepath.Join(source.dir, name), err)
				}
				if ctx.Err() != nil {
					s.blind = ctx.Err().Error()
					return s
				}
			}
		}
		s.seal()
		return s
	})
	if !ok {
		s = newSecrets("it took too long to find what must not be in them")
		s.seal()
	}
	return s
}

// fault notes what is missing.
func (b *bundle) fault(name string, err error) {
	if b.missing.Len() < maxPart/8 && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(&b.missing, "missing: %s: %s\n", quoted(name), reason(err))
	}
}

// make makes a file and adds it, if there is room.
func (b *bundle) make(ctx context.Context, i item) error {
	if i.text && b.secrets.blind != "" {
		return nil
	}
	var data []byte
	var removed int
	err, ok := timed(ctx, b.node.within, func(ctx context.Context) (err error) {
		var w tail
		removed, err = i.write(ctx, &w)
		data = w.lines()
		if i.text {
			text, n := b.secrets.clean(string(data))
			data, removed = []byte(text), removed+n
			if err != nil {
				text, _ = b.secrets.clean(reason(err))
				err = errors.New(text)
			}
		} else if w.cut { // a part of a document cannot be decoded
			data = nil
			return fmt.Errorf("longer than %d bytes", maxPart)
		}
		return err
	})
	switch {
	case !ok:
		b.fault(i.name, fmt.Errorf("took longer than %v", b.node.within))
		return nil
	case err != nil:
		b.fault(i.name, err)
	}
	switch {
	case len(data) == 0:
		return nil
	case len(data) > b.room || b.files == maxFiles:
		b.fault(i.name, errors.New("there is no room for it"))
		return nil
	}
	b.room -= len(data)
	b.files++
	fmt.Fprintln(&b.listed, len(data), removed, quoted(i.name))
	return b.add(i.name, data)
}

func (b *bundle) add(name string, data []byte) error {
	h := &tar.Header{Name: folder + name, Mode: 0o600, Size: int64(len(data)), ModTime: time.Now().Truncate(time.Second)}
	if err := b.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	if _, err := b.tar.Write(data); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	return nil
}

// quoted is a name in a list, on one line.
func quoted(name string) string {
	if q := strconv.Quote(name); len(q) != len(name)+2 {
		return q
	}
	return name
}

// tail keeps the end of what is written, at most 2*maxPart bytes.
type tail struct {
	data []byte
	cut  bool
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 2*maxPart {
		t.data, t.cut = append(t.data[:0], t.data[len(t.data)-maxPart:]...), true
	}
	return len(p), nil
}

// lines are the last whole lines, at most maxPart bytes: before them may be the end of a secret.
func (t *tail) lines() []byte {
	if len(t.data) > maxPart {
		t.data, t.cut = t.data[len(t.data)-maxPart:], true
	}
	if t.cut {
		_, t.data, _ = bytes.Cut(t.data, []byte("\n"))
	}
	return t.data
}
