package fieldpath

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const object = `{"metadata":{"name":"web","labels":{"a.b/c":"d"}},"status":{"phase":"Running","size":1000000,"conditions":[{"type":"Ready","status":"True"},{"type":"Other","status":"False"}]}}`

// The texts are what kubectl's documentation lets expect; they were not compared with one.
func TestTemplate(t *testing.T) {
	for template, want := range map[string]string{
		"{.status.phase}": "Running", "{.status.size}": "1000000", "{.none}": "", `{.metadata.name}{"\t"}{.status.phase}{"\n"}`: "web\tRunning\n",
		`{range .status.conditions[*]}{.type}={.status};{end}`:   "Ready=True;Other=False;",
		`{.status.conditions[?(@.type=="Ready")].status}`:        "True",
		`{.metadata.labels.a\.b/c}`:                              "d",
		`{.status.conditions[0]}`:                                `{"status":"True","type":"Ready"}`,
		`{.status.conditions[*]['type','status']} {.metadata.x}`: "Ready Other True False ",
	} {
		p, err := Template(template)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		if got, err := p.Print(json.RawMessage(object)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", template, got, err, want)
		}
	}
	for template, want := range map[string]string{"{.a": "unclosed action", "{.a[}": "error parsing jsonpath"} {
		p, err := Template(template)
		if err == nil {
			_, err = p.Print(json.RawMessage(object))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", template, err)
		}
	}
}

func TestField(t *testing.T) {
	for _, text := range []string{"status.phase", ".status.phase", "{status.phase}", "{.status.phase}"} {
		p, err := Field(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Values(json.RawMessage(object)); err != nil || fmt.Sprint(got) != "[Running]" {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "{", "{.a}{.b}", "{.a", "x{.a}"} {
		if _, err := Field(text); err == nil {
			t.Errorf("%q is a field", text)
		}
	}
}

func TestSort(t *testing.T) {
	for _, tt := range []struct{ values, want string }{
		{`"a10" "a2" "a1"`, `"a1" "a2" "a10"`},
		{`10 9 null 1.5`, `null 1.5 9 10`},
		{`"1Gi" "500Mi" "2"`, `"2" "500Mi" "1Gi"`},
		{`"2026-01-02T03:04:05Z" "2025-11-02T03:04:05Z"`, `"2025-11-02T03:04:05Z" "2026-01-02T03:04:05Z"`},
		{`"b" "a" "B"`, `"B" "a" "b"`},
		{`"a01" "a1" "a" "é"`, `"a" "a1" "a01" "é"`},
	} {
		var objects []json.RawMessage
		for v := range strings.FieldsSeq(tt.values) {
			objects = append(objects, json.RawMessage(`{"v":`+v+`}`))
		}
		p, err := Field(".v")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Sort(objects); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range objects {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(string(o), `{"v":`), "}"))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: sorted as %s, want %s", tt.values, got, tt.want)
		}
	}
	p, err := Field(".x")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Sort([]json.RawMessage{json.RawMessage(`{}`)}); err == nil || !strings.Contains(err.Error(), `couldn't find any field with path ".x"`) {
		t.Error(err)
	}
	if err := p.Sort(nil); err != nil {
		t.Error(err)
	}
}
