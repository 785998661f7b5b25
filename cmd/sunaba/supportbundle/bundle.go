// Package supportbundle writes what helps to find a fault of a node into one archive, without what
// may be secret.
//
// Documents (records, manifests, the configuration) are decoded, and of their values only those are
// shown whose keys are known: see redactor. What is removed from them is removed from texts, such as
// logs, as far as it can be found in them: see secrets.
package supportbundle

import (
	"archive/tar"
	"bytes"
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
	serverLog = "logs/server.log"
	maxPart   = 8 << 20  // bytes of one file
	maxBundle = 64 << 20 // bytes of all files together
	maxFiles  = 20000
	partTime  = 30 * time.Second // for one file; what takes longer is left out
)

// Node is the node that a bundle is about.
type Node struct {
	Root, State, Socket string

	ConfigFile string
	ConfigKeys map[string]bool // those whose values are shown
	// Unknown is why it is not known which files have secrets, "" if it is: no texts are shown then.
	Unknown string

	Credentials, HostsDir, PodLogs string   // "" for none
	Manifests                      []string // folders

	Shim     func() (string, error) // the binary
	Runtimes []string               // OCI runtimes
	Check    func(context.Context, io.Writer) error

	Unit, LogFile string // where the server's log is: LogFile, else the journal of Unit
	WithPodLogs   bool
	Within        time.Duration // for one file; 0 is partTime
}

// file is a file of the bundle.
type file struct {
	name    string
	size    int
	removed int
}

// bundle is an archive that is being written.
type bundle struct {
	node    Node
	secrets *secrets
	tar     *tar.Writer
	room    int64
	files   []file
	faults  []string
}

// write writes the archive and returns its index.
//
// # Errors
//
// The context's, and those of out. What cannot be read is in the index.
func (n Node) write(ctx context.Context, out io.Writer) (index string, err error) {
	if n.Within == 0 {
		n.Within = partTime
	}
	compressed := gzip.NewWriter(out)
	b := &bundle{node: n, tar: tar.NewWriter(compressed), room: maxBundle}
	b.secrets = b.learn(ctx)
	for _, t := range n.texts() {
		if err := b.addText(ctx, t.name, t.write); err != nil {
			return "", err
		}
	}
	for _, s := range n.sources(b.fault) {
		if s.keys == nil {
			continue
		}
		for _, name := range s.files(s.pattern) {
			if err := b.addDocuments(ctx, s, name); err != nil {
				return "", err
			}
		}
	}
	for _, l := range n.logs(b.fault) {
		if err := b.addText(ctx, l.name, l.write); err != nil {
			return "", err
		}
	}
	if b.secrets.blind != "" {
		b.faults = append(b.faults, "texts and logs are left out: "+b.secrets.blind)
	}
	index = b.index()
	if err := b.add("index.txt", []byte(index), 0); err != nil {
		return "", err
	}
	return index, errors.Join(b.tar.Close(), compressed.Close())
}

// learn reads all documents for what must not be in texts. It gives up after some time: then no
// texts are shown.
func (b *bundle) learn(ctx context.Context) *secrets {
	found := make(chan *secrets, 1)
	go func() {
		s := newSecrets()
		s.blind = b.node.Unknown
		note := func(name string, err error) {
			if errors.Is(err, errUnknown) && s.blind == "" {
				s.blind = fmt.Sprintf("%q %s, and what it has that must not be in them is not known", name, reason(err))
			}
		}
		for _, source := range b.node.sources(note) {
			for _, name := range source.files(source.pattern) {
				if ctx.Err() != nil {
					return
				}
				if _, _, err := source.read(name, s); err != nil {
					note(filepath.Join(source.dir, name), err)
				}
			}
		}
		s.seal()
		found <- s
	}()
	select {
	case s := <-found:
		return s
	case <-ctx.Done():
	case <-time.After(b.node.Within):
	}
	s := newSecrets()
	s.blind = "it took too long to find what must not be in them"
	s.seal()
	return s
}

// fault notes what is missing. It is told only by what fails, not by what it has.
func (b *bundle) fault(name string, err error) {
	if len(b.faults) < 1000 && !errors.Is(err, fs.ErrNotExist) {
		b.faults = append(b.faults, quoted(name)+": "+reason(err))
	}
}

// part is what was made for a file of the bundle.
type part struct {
	data    []byte
	removed int
	err     error
}

// within runs make in the time that a file has. What does not return is left behind.
func (b *bundle) within(ctx context.Context, make func(context.Context) part) (part, error) {
	limited, cancel := context.WithTimeout(ctx, b.node.Within)
	defer cancel()
	done := newChannel(func() part { return make(limited) })
	select {
	case p := <-done:
		return p, context.Cause(ctx)
	case <-limited.Done():
		return part{err: fmt.Errorf("took longer than %v", b.node.Within)}, context.Cause(ctx)
	}
}

func newChannel(f func() part) <-chan part {
	done := make(chan part, 1)
	go func() { done <- f() }()
	return done
}

// addDocuments adds what is shown of a file of documents.
func (b *bundle) addDocuments(ctx context.Context, s source, name string) error {
	p, err := b.within(ctx, func(context.Context) part {
		docs, removed, err := s.read(name, b.secrets)
		if err != nil {
			return part{err: err}
		}
		data, err := encode(docs)
		return part{data, removed, err}
	})
	if err != nil {
		return err
	}
	if p.err != nil {
		b.fault(filepath.Join(s.dir, name), p.err)
		return nil
	}
	return b.add(s.as+strings.TrimSuffix(name, ".json")+".json", p.data, p.removed)
}

// addText adds a text without what is known to be secret.
func (b *bundle) addText(ctx context.Context, name string, write func(context.Context, io.Writer) error) error {
	if b.secrets.blind != "" {
		return nil
	}
	p, err := b.within(ctx, func(ctx context.Context) part {
		var w tail
		err := write(ctx, &w)
		text, n := b.secrets.clean(string(w.bytes()))
		return part{[]byte(text), n, err}
	})
	if err != nil {
		return err
	}
	switch {
	case p.err != nil:
		text, _ := b.secrets.clean(reason(p.err))
		b.fault(name, errors.New(text))
	case len(p.data) == 0 && name == serverLog:
		b.fault(name, errors.New("it is empty: is the server's log elsewhere? (--unit, --log-file)"))
	}
	return b.add(name, p.data, p.removed)
}

// tail keeps the last whole lines of what is written, at most maxPart bytes.
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

func (t *tail) bytes() []byte {
	data, cut := t.data, t.cut
	if len(data) > maxPart {
		data, cut = data[len(data)-maxPart:], true
	}
	if cut { // in the first line may be the end of a secret
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return data
}

// add adds a file, if there is room.
func (b *bundle) add(name string, data []byte, removed int) error {
	switch {
	case len(data) == 0:
		return nil
	case len(data) > maxPart || int64(len(data)) > b.room || len(b.files) >= maxFiles:
		b.fault(name, fmt.Errorf("left out, there is no room for its %d bytes", len(data)))
		return nil
	}
	b.room -= int64(len(data))
	b.files = append(b.files, file{name, len(data), removed})
	if err := b.tar.WriteHeader(&tar.Header{Name: folder + name, Mode: 0o600, Size: int64(len(data)), ModTime: time.Now().Truncate(time.Second)}); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	if _, err := b.tar.Write(data); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	return nil
}

// index lists the files, and what is missing.
func (b *bundle) index() string {
	var w strings.Builder
	fmt.Fprintln(&w, "BYTES REMOVED FILE")
	for _, f := range b.files {
		fmt.Fprintln(&w, f.size, f.removed, quoted(f.name))
	}
	for _, f := range b.faults {
		fmt.Fprintln(&w, "missing:", f)
	}
	return w.String()
}

// quoted is a name in a list, on one line.
func quoted(name string) string {
	if q := strconv.Quote(name); len(q) != len(name)+2 {
		return q
	}
	return name
}
