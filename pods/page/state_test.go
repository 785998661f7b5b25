package page

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// fillAll sets every text of a value and gives every list so many items.
func fillAll(v reflect.Value, text string, items int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillAll(v.Elem(), text, items)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), items, items))
		for i := range items {
			fillAll(v.Index(i), text, items)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillAll(v.Field(i), text, items)
		}
	}
}

// longest is the longest text of a value, and the longest list.
func longest(v reflect.Value) (text, list int) {
	more := func(t, l int) { text, list = max(text, t), max(list, l) }
	switch v.Kind() {
	case reflect.String:
		return utf8.RuneCountInString(v.String()), 0
	case reflect.Pointer:
		if !v.IsNil() {
			return longest(v.Elem())
		}
	case reflect.Slice:
		list = v.Len()
		for i := range v.Len() {
			more(longest(v.Index(i)))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			more(longest(v.Field(i)))
		}
	}
	return text, list
}

// Whatever strangers give, what is sent has a limit: no field and no list is without.
func TestBound(t *testing.T) {
	var s State
	fillAll(reflect.ValueOf(&s).Elem(), strings.Repeat("<ä>", 400), 5)
	big := s
	for range 100 {
		big.Pods, big.Images, big.Events = append(big.Pods, s.Pods...), append(big.Images, s.Images...), append(big.Events, s.Events...)
		big.Problems, big.Node.Conditions = append(big.Problems, s.Problems...), append(big.Node.Conditions, s.Node.Conditions...)
	}
	for range 20 {
		big.Pods[0].Containers = append(big.Pods[0].Containers, s.Pods[0].Containers...)
		big.Images[0].Variants = append(big.Images[0].Variants, s.Images[0].Variants...)
	}
	bound(&big)
	if text, list := longest(reflect.ValueOf(big)); text > mostText+1 || list > mostPods {
		t.Errorf("a text of %d characters, a list of %d", text, list)
	}
	if big.MorePods != 505-mostPods || big.MoreImages != 505-mostImages || big.MoreEvents != 505-mostEvents ||
		big.Pods[0].More != 105-mostContainers || big.Images[0].More != 105-mostVariants || len(big.Problems) != mostFew {
		t.Errorf("left out: %d pods, %d images, %d events, %d containers, %d variants", big.MorePods, big.MoreImages, big.MoreEvents, big.Pods[0].More, big.Images[0].More)
	}
	if text := big.Pods[0].Name; utf8.RuneCountInString(text) != mostName+1 || !strings.HasSuffix(text, "…") {
		t.Errorf("a name of %d characters: %q", utf8.RuneCountInString(text), text)
	}
	data, err := json.Marshal(big)
	if err != nil || strings.ContainsAny(string(data), "\n<>") || len(data) > 12<<20 {
		t.Errorf("%v, %d bytes", err, len(data))
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"web": "web", "a\nb\tc": "a b c", "x\x1b[31m": "x\uFFFD[31m", "txt\u202Egnp.exe": "txt\uFFFDgnp.exe", "a\u2066b\u2069": "a\uFFFDb\uFFFD", "\xff": "\uFFFD",
		"日本語 ١٢ 👩‍🌾": "日本語 ١٢ 👩‍🌾", "<b>&": "<b>&", "12345678": "1234567…",
	} {
		most := 20
		if in == "12345678" {
			most = 7
		}
		if got := plain(in, most); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// An empty state has empty lists, which the script need not look for.
func TestEmptyLists(t *testing.T) {
	var s State
	bound(&s)
	data, err := json.Marshal(s)
	if err != nil || strings.Contains(string(data), "null") {
		t.Errorf("%s, %v", data, err)
	}
}

// The node's figures are of all pods, also of those that are not sent.
func TestTotal(t *testing.T) {
	s := State{Pods: []Pod{{}, {Tone: Failing, Use: &Use{Cores: -1}}}}
	if bound(&s); s.Total != (Total{Running: 1, Failing: 1, Cores: -1}) {
		t.Errorf("without a second sample: %+v", s.Total)
	}
	s = State{Pods: []Pod{{Use: &Use{Cores: -1, MemoryBytes: 1}}}}
	for range 300 {
		s.Pods = append(s.Pods, Pod{Use: &Use{Cores: 0.5, MemoryBytes: 2, DeclaredBytes: 3, MeasuredBytes: 4}})
	}
	want := Total{Running: 301, Cores: 150, MemoryBytes: 601, DeclaredBytes: 900, MeasuredBytes: 1200}
	if bound(&s); s.Total != want || len(s.Pods) != mostPods {
		t.Errorf("%+v of %d pods, want %+v", s.Total, len(s.Pods), want)
	}
}
