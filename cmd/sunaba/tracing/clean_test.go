package tracing

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"docker.io/library/nginx:1.29": "docker.io/library/nginx:1.29",
		"is it there? no, a@b is not":  "is it there? no, a@b is not",
		"nginx@sha256:00ff":            "nginx@sha256:00ff",
		`pull "x": Get "https://cdn.example/blob?X-Amz-Signature=secret&a=b": EOF`: `pull "x": Get "https://cdn.example/blob?…": EOF`,
		"/v2/x/blobs/y?token=secret gone":                                          "/v2/x/blobs/y?… gone",
		"https://user:secret@host:5000/v2/a@b/x":                                   "https://…@host:5000/v2/a@b/x",
		"https://user:secret@host":                                                 "https://…@host",
		"https://a@b:secret@host/?sig=secret\nnext":                                "https://…@host/?…\nnext",
		"bad \xff byte": "bad \uFFFD byte",
	} {
		if got := clean(text, maxText); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCleanBoundsTexts(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("語", 1<<18), strings.Repeat("x\xff", 1<<18)} {
		got := clean(text, maxText)
		if len(got) > maxText || len(got) < maxText-8 || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
	// A query that is cut within what is looked at does not show either.
	if got := clean("https://host/"+strings.Repeat("p", 100)+"?sig="+strings.Repeat("s", 1<<20), maxError); strings.Contains(got, "sss") {
		t.Errorf("%q", got)
	}
}
