package fields

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// roots are the objects that have laws.
var roots = []any{
	corev1.Pod{}, corev1.EphemeralContainer{}, corev1.ConfigMap{}, corev1.Secret{}, corev1.PersistentVolumeClaim{}, nodev1.RuntimeClass{},
}

// element is the type of one value of a field.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// eachType visits the types that are reached over fields that are done.
func eachType(laws Laws, t reflect.Type, seen map[reflect.Type]bool, visit func(reflect.Type)) {
	t = element(t)
	if t.Kind() != reflect.Struct || !judged(t) || seen[t] {
		return
	}
	seen[t] = true
	visit(t)
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline := fieldName(f)
		if r, known := laws[t.Name()][name]; inline || known && r.verdict == done {
			eachType(laws, f.Type, seen, visit)
		}
	}
}

// AD3: every field of the API is in exactly one of the lists. A field that a new version of
// k8s.io/api brings is in none, and this test says so.
func TestEveryFieldHasALaw(t *testing.T) {
	all, seen := AllLaws(), map[reflect.Type]bool{}
	names := map[string]bool{}
	for _, root := range roots {
		eachType(all, reflect.TypeOf(root), seen, func(typ reflect.Type) {
			names[typ.Name()] = true
			for i := range typ.NumField() {
				name, inline := fieldName(typ.Field(i))
				if _, known := all[typ.Name()][name]; !known && !inline {
					t.Errorf("%s.%s is in none of the lists of law.go", typ.Name(), name)
				}
			}
		})
	}
	for _, l := range laws {
		if !names[l.typ] {
			t.Errorf("law.go has a law for %s, which no object has", l.typ)
		}
	}
	if len(names) < 60 {
		t.Errorf("only %d types were looked at", len(names))
	}
}

// A field that is in two lists, or that no type has, would be judged by chance or never.
func TestLawsAreOfFields(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, root := range roots {
		eachType(AllLaws(), reflect.TypeOf(root), map[reflect.Type]bool{}, func(typ reflect.Type) { types[typ.Name()] = typ })
	}
	listed := map[string]bool{}
	for _, l := range laws {
		if listed[l.typ] {
			t.Errorf("law.go has two laws for %s", l.typ)
		}
		listed[l.typ] = true
		have := slices.Concat(strings.Fields(l.done), strings.Fields(l.void))
		for _, r := range l.refused {
			have = append(have, r.field)
			if r.advice == "" {
				t.Errorf("%s.%s is refused without advice", l.typ, r.field)
			}
		}
		slices.Sort(have)
		if len(slices.Compact(slices.Clone(have))) != len(have) {
			t.Errorf("%s has a field in two lists: %q", l.typ, have)
		}
		typ := types[l.typ]
		if typ == nil {
			continue // TestEveryFieldHasALaw says so
		}
		var fields []string
		for i := range typ.NumField() {
			if name, inline := fieldName(typ.Field(i)); !inline {
				fields = append(fields, name)
			}
		}
		slices.Sort(fields)
		if !slices.Equal(have, fields) {
			t.Errorf("law of %s has\n%q, the type has\n%q", l.typ, have, fields)
		}
	}
}

// fill sets a value to something that is not nothing.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if v.Type().Elem().Kind() == reflect.String {
			fill(v.Index(0))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			v.Set(reflect.ValueOf(metav1.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
				return
			}
		}
	}
}

// eachField calls visit with one field set after the other, below at, on every way over fields that
// are done. The root that visit looks at is the same each time.
func eachField(all Laws, v reflect.Value, path string, depth int, visit func(typ reflect.Type, name, path string)) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		eachField(all, v.Elem(), path, depth+1, visit)
		v.SetZero()
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		eachField(all, v.Index(0), path+"[0]", depth+1, visit)
		v.SetZero()
	case reflect.Struct:
		if !judged(v.Type()) {
			return
		}
		for i := range v.NumField() {
			field := v.Field(i)
			name, inline := fieldName(v.Type().Field(i))
			if inline {
				eachField(all, field, path, depth+1, visit)
				continue
			}
			at := strings.TrimPrefix(path+"."+name, ".")
			fill(field)
			visit(v.Type(), name, at)
			field.SetZero()
			if all[v.Type().Name()][name].verdict == done {
				eachField(all, field, at, depth+1, visit)
			}
		}
	}
}

// H.2: each refused field is refused with its name and advice, each void one brings a note, a done
// one neither; wherever it stands.
func TestEachFieldIsJudged(t *testing.T) {
	all := AllLaws()
	seen := map[verdict]int{}
	for _, root := range roots {
		object := reflect.New(reflect.TypeOf(root))
		eachField(all, object.Elem(), "", 0, func(typ reflect.Type, name, path string) {
			var bad Problems
			before := fmt.Sprintf("%+v", object.Elem().Interface())
			notes := all.Judge(&bad, "", object.Interface())
			r := all[typ.Name()][name]
			seen[r.verdict]++
			errText := ""
			if err := bad.Err(); err != nil {
				errText = err.Error()
			}
			inner := strings.HasPrefix(errText, path+".") || strings.HasPrefix(errText, path+"[") // filled with the first field of a struct
			switch {
			case r.verdict == refused && errText != path+": is not supported: "+r.advice:
				t.Errorf("%s is refused; the error is %q", path, errText)
			case r.verdict == void && (len(notes) != 1 || !strings.HasPrefix(notes[0], path+": has no effect") || errText != ""):
				t.Errorf("%s is void; notes %q, error %q", path, notes, errText)
			case r.verdict == done && errText != "" && !inner:
				t.Errorf("%s is done; the error is %q", path, errText)
			}
			if dropped := fmt.Sprintf("%+v", object.Elem().Interface()) != before; dropped != r.dropped && !inner && len(notes) < 2 {
				t.Errorf("%s: dropped is %t, want %t", path, dropped, r.dropped)
			}
		})
	}
	if seen[refused] < 70 || seen[void] < 20 || seen[done] < 500 {
		t.Errorf("looked at %d refused, %d void and %d done fields", seen[refused], seen[void], seen[done])
	}
}

// A field that no law knows is refused, not ignored.
func TestUnknownFieldsAreRefused(t *testing.T) {
	all := AllLaws()
	delete(all["PodSpec"], "hostUsers")
	no := false
	var bad Problems
	all.Judge(&bad, "", &corev1.Pod{Spec: corev1.PodSpec{HostUsers: &no}})
	if err := bad.Err(); err == nil || !strings.HasPrefix(err.Error(), "spec.hostUsers: is not known to this version of Sunaba") {
		t.Errorf("error %v", err)
	}
}

// An empty list is as good as none.
func TestEmptyListsAreNotJudged(t *testing.T) {
	var bad Problems
	pod := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{}, TopologySpreadConstraints: []corev1.TopologySpreadConstraint{}}}
	if notes := AllLaws().Judge(&bad, "", pod); len(notes) > 0 || bad.Err() != nil {
		t.Errorf("notes %q, error %v", notes, bad.Err())
	}
}

// The laws are put together once, not for each file.
func TestAllLawsOnce(t *testing.T) {
	if n := testing.AllocsPerRun(10, func() { AllLaws() }); n != 0 {
		t.Errorf("%v allocations for the laws", n)
	}
}

// docs/pods.md names each field that is refused, where it says what is, and each without effect.
func TestRefusedFieldsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## What is refused\n")
	section, _, found := strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/pods.md has no section about what is refused")
	}
	for _, l := range laws {
		for _, r := range l.refused {
			// Volumes of networks and clouds, and what no debug container has, are named together;
			// required affinities in words.
			if r.advice == mountIt || r.advice == noDebug || r.advice == nearPods {
				continue
			}
			if !regexp.MustCompile("\\b" + r.field + "\\b").MatchString(section) {
				t.Errorf("%s of %s is refused, and docs/pods.md does not say so", r.field, l.typ)
			}
		}
		for name := range strings.FieldsSeq(l.void) {
			if !l.dropped && l.typ != "ClusterTrustBundleProjection" && name != "serviceAccount" && !strings.HasPrefix(name, "preferred") && !strings.Contains(section, "`"+name+"`") {
				t.Errorf("%s of %s has no effect, and docs/pods.md does not say so", name, l.typ)
			}
		}
	}
}
