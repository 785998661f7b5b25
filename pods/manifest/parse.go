package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Bounds of what a file may hold.
const (
	// MaxFile is the size of a manifest file in bytes, a kubelet's.
	MaxFile = 10 << 20
	// maxObjects and maxDocuments are those of one file.
	maxObjects, maxDocuments = 1000, 1000
	// maxObject is the size of one object in bytes as JSON: what the API server takes.
	maxObject = 3 << 20
	// maxErrors are the documents whose errors are told.
	maxErrors = 10
)

// parser collects what one file holds.
type parser struct {
	file    string
	options Options
	laws    fields.Laws
	objects []Object
	notes   []string
	errs    []error
	seen    map[Key]int // object → document
	count   int         // of objects, also those that are left out
}

// place is where an object stands: its document, and its item of a List or -1.
type place struct {
	document, line, item int
	lines                *lines // of the document
}

// Parse reads a manifest file: any number of YAML or JSON documents, each an object or a List of
// them. Objects are returned in their order with the API server's defaults. The file's name is used
// in texts only.
//
// Notes say what has no effect on one node, or is skipped because the options say so; each starts
// with file, document and object.
//
// # Errors
//
// ErrInvalidArgument; the text has one line for each bad document, as in
// `web.yaml: document 2, pod default/web: spec.containers[0].name: is required (line 12)`. There are no
// objects then: a file is taken whole or not at all.
func Parse(file string, data []byte, o Options) (objects []Object, notes []string, err error) {
	p := &parser{file: file, options: o, laws: fields.AllLaws(), seen: map[Key]int{}}
	if err := p.parse(data); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(p.errs) > 0 {
		return nil, nil, errors.Join(p.errs...)
	}
	return p.objects, p.notes, nil
}

// parse goes through the documents; its error is about the file as a whole.
func (p *parser) parse(data []byte) error {
	if len(data) > MaxFile {
		return fields.Invalid(fmt.Sprintf("is larger than %d bytes", MaxFile))
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if !utf8.Valid(data) {
		return fields.Invalid("is not UTF-8")
	}
	if bytes.Count(data, []byte("\n---")) > maxDocuments {
		return fields.Invalid(fmt.Sprintf("has more than %d documents", maxDocuments))
	}
	for i, d := range runtimeclass.Documents(p.file, data) {
		at := place{document: i + 1, line: d.Line, item: -1, lines: &lines{data: d.Data}}
		js, err := toJSON(d)
		if err != nil {
			p.fail(at, "", err)
			continue
		}
		p.object(at, js)
		if p.count > maxObjects {
			return fields.Invalid(fmt.Sprintf("has more than %d objects", maxObjects))
		}
		if len(p.errs) >= maxErrors {
			break
		}
	}
	return nil
}

// head is what is read of every object, whatever its kind.
type head struct {
	metav1.TypeMeta
	Metadata struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	} `json:"metadata"`
}

// key is the object's name for texts, before it is known whether it is a good one.
func (h head) key(namespace string) Key {
	k := Key{Kind: h.Kind, Namespace: h.Metadata.Namespace, Name: h.Metadata.Name}
	if k.Name == "" {
		k.Name = h.Metadata.GenerateName
	}
	if k.Namespace == "" && !slices.Contains(clusterKinds, h.Kind) {
		k.Namespace = namespace
	}
	return k
}

// object takes one object, or the items of a List.
func (p *parser) object(at place, js []byte) {
	var h head
	if err := json.Unmarshal(js, &h); err != nil {
		p.fail(at, "", cleaned(err))
		return
	}
	if h.Kind == "List" && h.APIVersion == "v1" {
		p.list(at, js)
		return
	}
	p.count++
	key := h.key(p.namespace())
	name := describe(key)
	if len(js) > maxObject {
		p.fail(at, name, fields.Invalid(fmt.Sprintf("has more than %d bytes", maxObject)))
		return
	}
	switch verdict, text := judge(h.TypeMeta, p.options.IgnoreKinds); verdict {
	case refusedKind:
		p.fail(at, name, fields.Invalid(text))
		return
	case ignoredKind:
		p.note(at, name, text)
		return
	}
	value, found, err := p.read(h, js)
	if err != nil {
		p.fail(at, name, err)
		return
	}
	key.Namespace = value.GetNamespace()
	if before, twice := p.seen[key]; twice {
		p.fail(at, name, fields.Invalid(fmt.Sprintf("stands in document %d already", before)))
		return
	}
	p.seen[key] = at.document
	for _, text := range found.notes {
		p.note(at, name, text)
	}
	p.objects = append(p.objects, Object{
		Key: key, File: p.file, Document: at.document, Line: at.line, Value: value, Defaulted: found.defaulted,
	})
}

// list takes the items of a List. A List in a List is refused.
func (p *parser) list(at place, js []byte) {
	var l struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        json.RawMessage   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	var bad fields.Problems
	if err := strict(js, &l, &bad); err != nil {
		p.fail(at, "list", err)
		return
	}
	if err := bad.Err(); err != nil {
		p.fail(at, "list", err)
		return
	}
	if at.item >= 0 {
		p.fail(at, "list", fields.Invalid("is in another List: put its items into that one"))
		return
	}
	for i, item := range l.Items {
		if p.count > maxObjects || len(p.errs) >= maxErrors {
			return
		}
		p.object(place{document: at.document, line: at.line, item: i, lines: at.lines}, item)
	}
}

func (p *parser) namespace() string {
	if p.options.Namespace != "" {
		return p.options.Namespace
	}
	return metav1.NamespaceDefault
}

func (p *parser) fail(at place, name string, err error) {
	if refusal, ok := errors.AsType[fields.Refusal](err); ok {
		err = refusal.At(func(path string) int { return at.lines.of(at.item, path) })
	}
	if !errors.Is(err, errdefs.ErrInvalidArgument) {
		err = fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	p.errs = append(p.errs, fmt.Errorf("%s: %w", p.where(at, name), err))
}

func (p *parser) note(at place, name, text string) {
	p.notes = append(p.notes, p.where(at, name)+": "+text)
}

// where starts every text: "web.yaml: document 2, items[0], pod default/web".
func (p *parser) where(at place, name string) string {
	parts := []string{fmt.Sprintf("%s: document %d", p.file, at.document)}
	if at.item >= 0 {
		parts = append(parts, fmt.Sprintf("items[%d]", at.item))
	}
	if name != "" {
		parts = append(parts, name)
	}
	return strings.Join(parts, ", ")
}

// describe is a key for texts: nothing in it is longer than a name can be.
func describe(k Key) string {
	const longest = 253
	if k.Kind == "" {
		return ""
	}
	cut := func(s string) string {
		if len(s) > longest {
			s = s[:longest] + "…"
		}
		return strings.Trim(fmt.Sprintf("%q", s), `"`)
	}
	return Key{Kind: cut(k.Kind), Namespace: cut(k.Namespace), Name: cut(k.Name)}.String()
}
