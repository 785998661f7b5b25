package components_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/components"
)

// TestNotes asks the example in Python, here and under wasmtime.
func TestNotes(t *testing.T) {
	all, component := tools(t), filepath.Join(t.TempDir(), "notes.wasm")
	file, err := filepath.Abs("../../examples/notes/notes.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := all.FromPython(t.Context(), components.Proxy, file, component); err != nil {
		t.Fatal(err)
	}
	ours, theirs := both(t, component, append(wasmtime(t, all, "serve", "python"), "-Scli")...)
	servers := map[string]string{"here": ours, "wasmtime": theirs}
	long := strings.Repeat("all of it ", 30000)
	for _, c := range []struct {
		method, target, text string
		status               int
		want                 string
	}{
		{"GET", "/", "", 200, `{"POST /words?n=N": "the N most frequent words of the body"}`},
		{"POST", "/words?n=2", "One fish, two fish.", 200, `{"words": 4, "top": [{"word": "fish", "times": 2}, {"word": "one", "times": 1}]}`},
		{"POST", "/words?n=1", long, 200, `{"words": 90000, "top": [{"word": "all", "times": 30000}]}`},
		{"POST", "/words", "", 200, `{"words": 0, "top": []}`},
		{"POST", "/words?n=0", "", 400, `{"error": "n is a number from 1 to 100"}`},
		{"POST", "/words", strings.Repeat(long, 4), 413, `{"error": "a text has at most 1048576 bytes"}`},
		{"GET", "/words", "", 405, `{"error": "send the text by POST"}`},
		{"GET", "/none", "", 404, `{"error": "there is no /none"}`},
	} {
		for name, address := range servers {
			r, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+c.target, strings.NewReader(c.text))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || answer.StatusCode != c.status || string(body) != c.want+"\n" || answer.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %s %s: %d %q %v, want %d %q", name, c.method, c.target, answer.StatusCode, body, err, c.status, c.want)
			}
		}
	}
}

// TestMask has the example in JavaScript stand before a server, here and under wasmtime.
func TestMask(t *testing.T) {
	all, component := tools(t), filepath.Join(t.TempDir(), "mask.wasm")
	example, err := filepath.Abs("../../examples/mask")
	if err != nil {
		t.Fatal(err)
	}
	need(t, all.FromFetchEvent(t.Context(), filepath.Join(example, "mask.wit"), filepath.Join(example, "mask.js"), component))
	long := strings.Repeat("all of it ", 7000) + "ann@example.org" + strings.Repeat(" and more", 7000)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", r.Header.Get("X-Type"))
		w.Header().Set("X-Behind", r.Method+" "+r.RequestURI)
		w.WriteHeader(http.StatusAccepted)
		w.Write(body)
	}))
	t.Setenv("UPSTREAM", behind.URL)
	ours, theirs := both(t, component, append(wasmtime(t, all, "serve", "javascript"), "-Scli", "-Sinherit-env")...)
	servers := map[string]string{"here": ours, "wasmtime": theirs}
	ask := func(target, kind, text string) map[string]string {
		got := map[string]string{}
		for name, address := range servers {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+target, strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Type", kind)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil {
				t.Fatalf("%s: %s: %v", name, target, err)
			}
			got[name] = fmt.Sprint(answer.StatusCode, " ", answer.Header.Get("X-Behind"), " ", answer.Header.Get("X-Filter"), " ", string(body))
		}
		return got
	}
	for _, c := range []struct{ target, kind, text, want string }{
		{"/a?b=%20", "text/plain", "to ann.b@example.org or bob@example.com.\n", "202 POST /a?b=%20 mask to *** or ***.\n"},
		{"/a", "application/octet-stream", "ann@example.org\n", "202 POST /a mask ann@example.org\n"},
		{"/a", "text/plain", "", "202 POST /a mask "},
		{"/a", "text/plain", "日本 ann@example.org", "202 POST /a mask 日本 ***"},
		{"/a", "text/plain", long, "202 POST /a mask " + strings.ReplaceAll(long, "ann@example.org", "***")},
		{"/admin/a", "text/plain", "", "403   not for everybody\n"},
	} {
		for name, got := range ask(c.target, c.kind, c.text) {
			if got != c.want {
				t.Errorf("%s: %s, %s, %d bytes: got %.100q, want %.100q", name, c.target, c.kind, len(c.text), got, c.want)
			}
		}
	}
	behind.Close()
	for name, got := range ask("/a", "text/plain", "") {
		if !strings.HasPrefix(got, "502   the server does not answer: ") {
			t.Errorf("%s, without a server: %q", name, got)
		}
	}
}
