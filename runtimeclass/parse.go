package runtimeclass

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Document is one YAML (or JSON) document of a manifest file. Its errors name
// the file and the line where the document starts.
type Document struct {
	File string
	Line int // of the first line that is not blank or comment, from 1
	// Data is the document below as many line breaks as there are lines above
	// it, so that a YAML error tells the line in the file.
	Data []byte
}

// Documents splits a manifest file at its "---" lines. Documents that hold
// nothing but blanks and comments are left out.
func Documents(file string, data []byte) []Document {
	var out []Document
	cur := Document{File: file}
	flush := func() {
		if cur.Line > 0 {
			out = append(out, cur)
		}
		cur = Document{File: file}
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if isSeparator(line) {
			flush()
			continue
		}
		if trimmed := bytes.TrimSpace(line); cur.Line == 0 && (len(trimmed) == 0 || trimmed[0] == '#') {
			continue
		} else if cur.Line == 0 {
			cur.Line = n
			cur.Data = bytes.Repeat([]byte("\n"), n-1)
		}
		cur.Data = append(cur.Data, line...)
	}
	flush()
	return out
}

// isSeparator tells a document separator, which may carry a comment.
func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	if !ok {
		return false
	}
	rest = bytes.TrimRight(rest, "\r\n")
	trimmed := bytes.TrimLeft(rest, " \t")
	return len(trimmed) == 0 || (len(trimmed) < len(rest) && trimmed[0] == '#')
}

// TypeMeta reads the document's kind and apiVersion and nothing else.
func (d Document) TypeMeta() (metav1.TypeMeta, error) {
	var m metav1.TypeMeta
	if err := yaml.Unmarshal(d.Data, &m); err != nil {
		return m, d.Errorf("%w", err)
	}
	return m, nil
}

// Decode reads the document into a Kubernetes object, strictly: unknown
// fields, fields in the wrong case and duplicate fields are errors.
func (d Document) Decode(into any) error {
	js, err := yaml.YAMLToJSONStrict(d.Data)
	if err != nil {
		return d.Errorf("%w", err)
	}
	strict, err := kjson.UnmarshalStrict(js, into)
	if err != nil {
		return d.Errorf("%w", err)
	}
	if len(strict) > 0 {
		texts := make([]string, len(strict))
		for i, e := range strict {
			texts[i] = e.Error()
		}
		return d.Errorf("%s", strings.Join(texts, "; "))
	}
	return nil
}

// Errorf returns an error of class ErrInvalidArgument that starts with the
// document's file and line.
func (d Document) Errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w: %w", d.File, d.Line, fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
}

// Parse reads the node.k8s.io/v1 RuntimeClass manifests of one file, which
// may hold several documents. The file's name is used in errors only.
//
// # Errors
//
// ErrInvalidArgument with file and line, for YAML that cannot be read, another kind of object,
// unknown fields, names that Kubernetes would refuse, negative overhead, and one name given twice.
func Parse(file string, data []byte) ([]nodev1.RuntimeClass, error) {
	var out []nodev1.RuntimeClass
	for _, d := range Documents(file, data) {
		rc, err := d.RuntimeClass()
		if err != nil {
			return nil, err
		}
		if _, err := Find(out, rc.Name); err == nil {
			return nil, d.Errorf("RuntimeClass %q is defined twice", rc.Name)
		}
		out = append(out, rc)
	}
	return out, nil
}

// RuntimeClass reads the document as a RuntimeClass and checks it as the API server would.
func (d Document) RuntimeClass() (nodev1.RuntimeClass, error) {
	var rc nodev1.RuntimeClass
	m, err := d.TypeMeta()
	if err != nil {
		return rc, err
	}
	if m.Kind != "RuntimeClass" || m.APIVersion != nodev1.SchemeGroupVersion.String() {
		return rc, d.Errorf("want kind RuntimeClass of %s, have kind %q of %q", nodev1.SchemeGroupVersion, m.Kind, m.APIVersion)
	}
	if err := d.Decode(&rc); err != nil {
		return rc, err
	}
	if err := Check(&rc); err != nil {
		return rc, d.Errorf("RuntimeClass %q: %w", rc.Name, err)
	}
	return rc, nil
}

// Check says what the API server would refuse in a class. The error starts with the field.
func Check(rc *nodev1.RuntimeClass) error {
	if errs := validation.IsDNS1123Subdomain(rc.Name); len(errs) > 0 {
		return fmt.Errorf("metadata.name: %s", strings.Join(errs, "; "))
	}
	if rc.Namespace != "" {
		return fmt.Errorf("metadata.namespace: a RuntimeClass has no namespace")
	}
	if errs := validation.IsDNS1123Label(rc.Handler); len(errs) > 0 {
		return fmt.Errorf("handler %q: %s", rc.Handler, strings.Join(errs, "; "))
	}
	if rc.Overhead != nil {
		if err := CheckQuantities("overhead.podFixed", rc.Overhead.PodFixed); err != nil {
			return err
		}
	}
	if rc.Scheduling != nil {
		return checkScheduling(rc.Scheduling)
	}
	return nil
}

// CheckQuantities refuses negative quantities and resource names that
// Kubernetes would refuse; the error's text starts with field.
func CheckQuantities(field string, list corev1.ResourceList) error {
	for _, name := range sortedNames(list) {
		if errs := validation.IsQualifiedName(string(name)); len(errs) > 0 {
			return invalid("%s[%s]: %s", field, name, strings.Join(errs, "; "))
		}
		if q := list[name]; q.Sign() < 0 {
			return invalid("%s[%s]: %s is negative", field, name, q.String())
		}
	}
	return nil
}

// Find returns the class called name.
//
// # Errors
//
// ErrNotFound; the text lists the classes there are.
func Find(classes []nodev1.RuntimeClass, name string) (nodev1.RuntimeClass, error) {
	var have []string
	for _, rc := range classes {
		if rc.Name == name {
			return rc, nil
		}
		have = append(have, rc.Name)
	}
	known := "no RuntimeClass is known"
	if len(have) > 0 {
		known = "there are: " + strings.Join(have, ", ")
	}
	return nodev1.RuntimeClass{}, fmt.Errorf("find RuntimeClass %q (%s): %w", name, known, errdefs.ErrNotFound)
}
