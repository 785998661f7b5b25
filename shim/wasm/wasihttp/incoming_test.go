package wasihttp

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestEndOfBodyIsKnownToAll has who reads a body's end find it finished: a response that follows is
// the end of a request that has arrived as a whole, whose connection stays open.
func TestEndOfBodyIsKnownToAll(t *testing.T) {
	for range 100_000 {
		in := newIncoming(strings.NewReader("x"), func() http.Header { return nil }, requestCode)
		in.begin()
		n, err := io.Copy(io.Discard, in.pipe)
		if finished := in.finished.IsSet(); n != 1 || err != nil || !finished {
			t.Fatalf("%d bytes, %v, finished: %t", n, err, finished)
		}
	}
}
