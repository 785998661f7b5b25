package fields

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rule says how one field is treated.
type rule struct {
	verdict verdict
	advice  string
	dropped bool
}

// verdict says how a field is treated.
type verdict int

const (
	done verdict = iota
	void
	refused
)

// Laws are the laws by the names of type and field.
type Laws map[string]map[string]rule

// allLaws are the laws in a form that is quick to look up. Nobody changes them.
var allLaws = sync.OnceValue(indexLaws)

// AllLaws returns the laws. They are for reading.
func AllLaws() Laws { return allLaws() }

func indexLaws() Laws {
	all := make(Laws, len(laws))
	for _, l := range laws {
		rules := map[string]rule{}
		for _, name := range strings.Fields(l.done) {
			rules[name] = rule{verdict: done}
		}
		for _, name := range strings.Fields(l.void) {
			rules[name] = rule{verdict: void, dropped: l.dropped}
		}
		for _, r := range l.refused {
			rules[r.field] = rule{verdict: refused, advice: r.advice}
		}
		all[l.typ] = rules
	}
	return all
}

// fieldJudge walks over an object and judges each field that is set.
type fieldJudge struct {
	laws  Laws
	bad   *Problems
	notes []string
}

// Judge refuses fields of an object that are refused or that no law knows, removes those that are
// dropped, and returns notes on those that have no effect. It wants a pointer; path is that of the
// object, "" for a whole one.
func (l Laws) Judge(bad *Problems, path string, object any) (notes []string) {
	j := fieldJudge{laws: l, bad: bad}
	j.value(reflect.ValueOf(object), path)
	return j.notes
}

// value judges whatever stands at path.
func (j *fieldJudge) value(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			j.value(v.Elem(), path)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				j.value(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case reflect.Struct:
		if judged(v.Type()) {
			j.fields(v, path)
		}
	}
}

// judged says whether a type's fields are judged one by one: those of the API, not amounts, times
// and ports, which are one value.
func judged(t reflect.Type) bool {
	ours := t.PkgPath() == "k8s.io/api/core/v1" || t.PkgPath() == "k8s.io/api/node/v1"
	return ours || t == reflect.TypeFor[metav1.ObjectMeta]() || t == reflect.TypeFor[metav1.TypeMeta]()
}

// fields judges the fields of a struct.
func (j *fieldJudge) fields(v reflect.Value, path string) {
	rules := j.laws[v.Type().Name()]
	for i := range v.NumField() {
		name, inline := fieldName(v.Type().Field(i))
		field := v.Field(i)
		at := strings.TrimPrefix(path+"."+name, ".")
		if inline {
			j.value(field, path)
			continue
		}
		if !isSet(field) {
			continue
		}
		r, known := rules[name]
		switch {
		case !known:
			j.bad.Add(at, "is not known to this version of Sunaba: remove it")
		case r.verdict == refused:
			j.bad.Add(at, "is not supported: %s", r.advice)
		case r.verdict == done:
			j.value(field, at)
		case r.dropped:
			field.SetZero()
			j.notes = append(j.notes, at+": has no effect in a manifest and is left out")
		default:
			j.notes = append(j.notes, at+": has no effect on one node")
		}
	}
}

// fieldName is a field's name in manifests, and whether the fields of its type stand in its place.
func fieldName(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, name == "" && (f.Anonymous || strings.Contains(options, "inline"))
}

// isSet says whether a manifest has the field: an empty list is as good as none.
func isSet(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	return !v.IsZero()
}
