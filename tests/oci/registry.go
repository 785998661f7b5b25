package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is a registry in this process on a loopback address. It keeps its content in memory and
// remembers what it was asked for.
type Registry struct {
	Host   string // "127.0.0.1:PORT", the first part of every reference
	server *http.Server

	mu       sync.Mutex
	requests []string
}

// WithRegistry returns what node.Ground calls in its namespaces: it serves a registry, has prepare
// store images in it, and returns what run does. It says so and returns 1 if that fails.
func WithRegistry(registry **Registry, prepare func(folder string) error, run func() int) func(folder string) int {
	return func(folder string) int {
		served, err := Serve("127.0.0.1:0")
		if err == nil {
			defer served.Close()
			*registry = served
			err = prepare(folder)
		}
		if err != nil {
			fmt.Println("prepare the tests:", err)
			return 1
		}
		return run()
	}
}

// Serve starts a registry on address, "127.0.0.1:0" for a free port.
func Serve(address string) (*Registry, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve a registry: %w", err)
	}
	r := &Registry{Host: listener.Addr().String()}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, request.Method+" "+request.URL.Path)
		r.mu.Unlock()
		handler.ServeHTTP(w, request)
	})}
	go r.serve(listener)
	return r, nil
}

func (r *Registry) serve(listener net.Listener) {
	// Close is the only way that Serve ends; there is nobody to tell anything else.
	if err := r.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		log.Printf("registry on %s ended: %v", r.Host, err)
	}
}

// Join lets the registry answer on its address in the calling thread's network namespace too.
func (r *Registry) Join() error {
	listener, err := net.Listen("tcp", r.Host)
	if err != nil {
		return fmt.Errorf("serve a registry: %w", err)
	}
	go r.serve(listener)
	return nil
}

// Close ends the registry; every later request is refused.
func (r *Registry) Close() error { return r.server.Close() }

// Requests are the requests that clients made for blobs and manifests since the last call of
// ForgetRequests, each as "METHOD /path".
func (r *Registry) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.requests...)
}

// ForgetRequests empties the list of Requests.
func (r *Registry) ForgetRequests() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// Blobs counts the requests for blobs.
func (r *Registry) Blobs() int {
	n := 0
	for _, request := range r.Requests() {
		if strings.HasPrefix(request, "GET ") && strings.Contains(request, "/blobs/") {
			n++
		}
	}
	return n
}

// Push stores an image as HOST/path:tag and returns this reference.
func (r *Registry) Push(ctx context.Context, path string, image v1.Image) (string, error) {
	ref, err := name.ParseReference(r.Host + "/" + path)
	if err != nil {
		return "", err
	}
	defer r.ForgetRequests()
	return ref.Name(), remote.Write(ref, image, remote.WithContext(ctx))
}

// PushIndex stores an index and all it names as HOST/path:tag and returns this reference.
func (r *Registry) PushIndex(ctx context.Context, path string, index v1.ImageIndex) (string, error) {
	ref, err := name.ParseReference(r.Host + "/" + path)
	if err != nil {
		return "", err
	}
	defer r.ForgetRequests()
	return ref.Name(), remote.WriteIndex(ref, index, remote.WithContext(ctx))
}
