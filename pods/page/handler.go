package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/pods/api"
)

//go:embed assets/page.html
var pageHTML []byte

//go:embed assets/page.css
var pageCSS []byte

//go:embed assets/page.js
var pageJS []byte

//go:embed assets/icon.svg
var iconSVG []byte

// policy lets the page load its own files and stream and nothing else, and run its own script only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// handler serves the page and its stream.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, f := range []struct {
		path, kind string
		data       []byte
	}{
		{"/{$}", "text/html", pageHTML}, {"/page.css", "text/css", pageCSS}, {"/page.js", "text/javascript", pageJS}, {"/icon.svg", "image/svg+xml", iconSVG},
	} {
		mux.HandleFunc("GET "+f.path, file(f.kind+"; charset=utf-8", f.data))
	}
	mux.HandleFunc("GET /events", s.stream)
	h := api.ReadOnly(s.named(mux), s.Addr())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-cache",
			"Permissions-Policy": "camera=(), geolocation=(), microphone=()",
		} {
			w.Header().Set(name, value)
		}
		h.ServeHTTP(w, r)
	})
}

// file serves a file, which browsers keep and ask for again.
func file(kind string, data []byte) http.HandlerFunc {
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(data))
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if r.Method != http.MethodHead {
			_, _ = bytes.NewReader(data).WriteTo(w) // an error is the client's, which has left
		}
	}
}

// named lets requests pass that name an address which no foreign name server can make another's:
// this one, one of loopback, or any if all of the node's are served. On loopback, api.ReadOnly is
// stricter.
func (s *Server) named(h http.Handler) http.Handler {
	served := netip.Addr{}
	if tcp, ok := s.Addr().(*net.TCPAddr); ok {
		served = tcp.AddrPort().Addr().Unmap()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if !api.IsLocal(r.Host) && (err != nil || !served.IsUnspecified() && addr.Unmap() != served) {
			http.Error(w, "the status page is reached by the node's address", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// stream sends the state, and a new one when something has changed.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default: // a page of somebody else must not take the places
		http.Error(w, "the stream is for the status page", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	v, ok := s.hub.join()
	if !ok {
		w.Header().Set("Retry-After", retry)
		http.Error(w, fmt.Sprintf("%d clients look at this page already", mostViewers), http.StatusServiceUnavailable)
		return
	}
	defer s.hub.leave(v)
	control := http.NewResponseController(w)
	// The server's own times are for requests that end.
	if control.SetReadDeadline(time.Time{}) != nil {
		return
	}
	send := func(data []byte) bool {
		return control.SetWriteDeadline(time.Now().Add(cmp.Or(s.o.write, writeTime))) == nil && write(w, data) && control.Flush() == nil
	}
	// A browser that is cut off asks again after so many milliseconds.
	if !send([]byte("retry: 2000\n\n")) {
		return
	}
	beat := time.NewTicker(cmp.Or(s.o.beat, beatTime))
	defer beat.Stop()
	for {
		data := []byte("event: alive\ndata: 1\n\n") // for the script, to which a comment says nothing
		select {
		case <-r.Context().Done():
			return
		case <-s.hub.ctx.Done():
			return
		case data = <-v.news:
		case <-beat.C:
		}
		if !send(data) {
			return
		}
	}
}

func write(w http.ResponseWriter, data []byte) bool {
	_, err := w.Write(data)
	return err == nil
}
