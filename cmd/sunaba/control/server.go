package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
)

// maxRequest bounds a request that is no archive, in bytes.
const maxRequest = 1 << 20

// Server serves a store on a unix socket.
type Server struct {
	http   http.Server
	served chan error
	path   string
}

// Listen starts to serve a store on a unix socket, for its owner only. A socket
// that was left there is replaced: the caller knows that no server uses it.
func Listen(path string, s *images.Service, logger *slog.Logger) (*Server, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	l, err := unixsocket.Listen(path, 0o600)
	if err != nil {
		return nil, err
	}
	srv := &Server{served: make(chan error, 1), path: path}
	srv.http = http.Server{Handler: handler(s), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	go func() { srv.served <- srv.http.Serve(l) }()
	return srv, nil
}

// Close ends requests that are in progress and stops to serve.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if rerr := os.Remove(s.path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove socket: %w", rerr))
	}
	return err
}

func handler(s *images.Service) http.Handler {
	mux := http.NewServeMux()
	handle(mux, "pull", func(ctx context.Context, r request, p func(images.Progress)) (images.Image, error) {
		auth, err := r.credentials()
		if err != nil {
			return images.Image{}, err
		}
		return s.Pull(ctx, images.PullRequest{Ref: r.Name, Handler: r.Handler, Namespace: r.Namespace, Auth: auth, Progress: p})
	})
	handle(mux, "list", func(ctx context.Context, _ request, _ func(images.Progress)) ([]images.Image, error) {
		return s.List(ctx)
	})
	handle(mux, "find", func(ctx context.Context, r request, _ func(images.Progress)) (images.Image, error) {
		return s.Find(ctx, r.Name, r.Handler)
	})
	handle(mux, "remove", func(ctx context.Context, r request, _ func(images.Progress)) (struct{}, error) {
		return struct{}{}, s.Remove(ctx, r.Name)
	})
	handle(mux, "untag", func(ctx context.Context, r request, _ func(images.Progress)) (bool, error) {
		return s.Untag(ctx, r.Name, r.Force)
	})
	handle(mux, "push", func(ctx context.Context, r request, p func(images.Progress)) (images.Pushed, error) {
		auth, err := r.credentials()
		if err != nil {
			return images.Pushed{}, err
		}
		return s.Push(ctx, images.PushRequest{Source: r.Name, Dest: r.Dest, All: r.All, Auth: auth, Progress: p})
	})
	handle(mux, "tag", func(ctx context.Context, r request, _ func(images.Progress)) (struct{}, error) {
		return struct{}{}, s.Tag(ctx, r.Name, r.Names)
	})
	handle(mux, "check", func(ctx context.Context, r request, _ func(images.Progress)) (images.CheckReport, error) {
		return s.Check(ctx, r.Repair)
	})
	handle(mux, "gc", func(ctx context.Context, r request, _ func(images.Progress)) (images.Garbage, error) {
		return s.GC(ctx, r.DryRun)
	})
	handle(mux, "import", func(ctx context.Context, r request, p func(images.Progress)) ([]images.Image, error) {
		return s.Import(ctx, images.ImportRequest{Path: r.Path, Name: r.Name, Handler: r.Handler, Progress: p})
	})
	mux.HandleFunc("POST /import-stream", func(w http.ResponseWriter, q *http.Request) {
		r := request{Name: q.URL.Query().Get("name"), Handler: q.URL.Query().Get("handler")}
		answer(w, func(p func(images.Progress)) ([]images.Image, error) {
			return s.Import(q.Context(), images.ImportRequest{Reader: q.Body, Name: r.Name, Handler: r.Handler, Progress: p})
		})
	})
	mux.HandleFunc("POST /export", func(w http.ResponseWriter, q *http.Request) { export(s, w, q) })
	mux.HandleFunc("POST /module", func(w http.ResponseWriter, q *http.Request) { readModule(s, w, q) })
	return mux
}

// credentials are those of a request, none if it has none.
func (r request) credentials() (auth registry.Credentials, err error) {
	if len(r.Auth) > 0 && json.Unmarshal(r.Auth, &auth) != nil {
		err = fmt.Errorf("read credentials: %w", errdefs.ErrInvalidArgument)
	}
	return auth, err
}

// handle serves one kind of request.
func handle[T any](mux *http.ServeMux, name string, fn func(context.Context, request, func(images.Progress)) (T, error)) {
	mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, q *http.Request) {
		r, err := read(w, q)
		answer(w, func(p func(images.Progress)) (T, error) {
			if err != nil {
				var none T
				return none, err
			}
			return fn(q.Context(), r, p)
		})
	})
}

func read(w http.ResponseWriter, q *http.Request) (request, error) {
	var r request
	if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, maxRequest)).Decode(&r); err != nil {
		return r, fmt.Errorf("read request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return r, nil
}

// answer writes progress as it comes, and then the result or the error.
func answer[T any](w http.ResponseWriter, fn func(func(images.Progress)) (T, error)) {
	control := http.NewResponseController(w)
	// An archive is still being read while progress is written.
	control.EnableFullDuplex()
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	result, err := fn(func(p images.Progress) {
		if lines.Encode(line[T]{Progress: &p}) == nil {
			control.Flush()
		}
	})
	last := line[T]{Result: &result}
	if err != nil {
		last.Error = fail(err)
	}
	if lines.Encode(last) != nil {
		panic(http.ErrAbortHandler) // the client is to see that the end is missing
	}
}

// export answers with an archive, or with an error if there is to be none. One
// that breaks off is cut, so that the client sees it.
func export(s *images.Service, w http.ResponseWriter, q *http.Request) {
	r, err := read(w, q)
	var e *images.Export
	if err == nil {
		e, err = s.Export(q.Context(), r.Names)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	defer e.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	if err := e.Write(q.Context(), w); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// refuse answers a request for something that is no lines with an error.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/jsonl")
	w.WriteHeader(http.StatusConflict)
	json.NewEncoder(w).Encode(line[struct{}]{Error: fail(err)})
}

// moduleHeader tells in JSON what file follows.
const moduleHeader = "Sunaba-Module"

// readModule answers with the file, or with an error if there is to be none. One
// that breaks off is cut, so that the client sees it.
func readModule(s *images.Service, w http.ResponseWriter, q *http.Request) {
	r, err := read(w, q)
	started := false
	if err == nil {
		err = s.ReadModule(q.Context(), r.Name, r.Handler, func(file images.ModuleFile, content io.Reader) error {
			about, err := json.Marshal(file)
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", "application/wasm")
			w.Header().Set(moduleHeader, string(about))
			started = true
			_, err = io.Copy(w, content)
			return err
		})
	}
	switch {
	case err == nil:
	case started:
		panic(http.ErrAbortHandler)
	default:
		refuse(w, err)
	}
}
