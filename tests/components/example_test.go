package components_test

import (
	"io"
	"net/http"
	"os"
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SUNABA_COMPONENTS_CACHE", t.TempDir())
	servers := map[string]string{
		"here": web(t, self, "serve", component), "wasmtime": web(t, all.Wasmtime(), "serve", "-Scli", "--addr", "127.0.0.1:0", component),
	}
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
