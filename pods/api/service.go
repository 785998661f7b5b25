package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

const (
	// maxManifest bounds the text of a manifest, in bytes, as a file's in a folder.
	maxManifest = 10 << 20
	// maxApply is a manifest in JSON: base64, a name and a namespace.
	maxApply   = maxManifest/3*4 + 64<<10
	maxRequest = 64 << 10
	maxGrace   = 1 << 31
)

// service is what only the socket serves.
type service struct {
	agent   Agent
	power   Shutdowner // nil without
	info    ServerInfo
	usage   func(context.Context) ([]ContainerUsage, error)
	watches chan struct{} // one place for each
}

// list is a list of objects as Kubernetes encodes it.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct{}          `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

func (s *service) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /objects/{kind}", func(w http.ResponseWriter, r *http.Request) {
		l, err := s.list(r)
		answer(w, l, err)
	})
	mux.HandleFunc("GET /watch/{kind}", s.watch)
	mux.HandleFunc("GET /describe/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		d, err := s.describe(r.PathValue("namespace"), r.PathValue("name"))
		answer(w, d, err)
	})
	mux.HandleFunc("GET /usage", func(w http.ResponseWriter, r *http.Request) {
		if s.usage == nil {
			refuse(w, fmt.Errorf("measure containers: the server does not: %w", errdefs.ErrNotImplemented))
			return
		}
		all, err := s.usage(r.Context())
		answer(w, all, err)
	})
	mux.HandleFunc("GET /v1/server", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.info, nil) })
	mux.HandleFunc("POST /debug", order(s.agent.Debug))
	mux.HandleFunc("POST /apply", func(w http.ResponseWriter, r *http.Request) {
		result, err := s.apply(w, r)
		answer(w, result, err)
	})
	mux.HandleFunc("POST /delete", func(w http.ResponseWriter, r *http.Request) { answer(w, struct{}{}, s.delete(w, r)) })
	mux.HandleFunc("POST /restart", order(s.agent.Restart))
	mux.HandleFunc("POST /shutdown", func(w http.ResponseWriter, r *http.Request) { answer(w, struct{}{}, s.shutdown(w, r)) })
}

// wanted is the kind of a request's path and its query.
func wanted(r *http.Request) (Resource, *filter, error) {
	resource, ok := FindResource(r.PathValue("kind"))
	if !ok {
		return resource, nil, fmt.Errorf("the server doesn't have a resource type %q: %w", r.PathValue("kind"), errdefs.ErrInvalidArgument)
	}
	f, err := decodeQuery(r.URL.Query()).filter(resource)
	return resource, f, err
}

func (s *service) list(r *http.Request) (*list, error) {
	resource, f, err := wanted(r)
	if err != nil {
		return nil, err
	}
	return listItems(s.agent, resource, f)
}

func listItems(a Agent, r Resource, f *filter) (*list, error) {
	l := &list{TypeMeta: metav1.TypeMeta{Kind: r.Kind + "List", APIVersion: r.APIVersion}, Items: []json.RawMessage{}}
	for _, i := range items(a, r) {
		if !f.matches(i) {
			continue
		}
		raw, err := encodeItem(i, r, f.Values)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, raw)
	}
	return l, nil
}

func (s *service) describe(namespace, name string) (*Description, error) {
	pods := s.agent.Pods()
	at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if at < 0 {
		return nil, notFound("pods", name)
	}
	d := &Description{Pod: pods[at], Next: s.agent.Next(pods[at].UID), Events: []corev1.Event{}}
	for _, e := range s.agent.Events() {
		o := e.InvolvedObject
		if o.Kind == manifest.KindPod && o.Namespace == namespace && o.Name == name && cmp.Or(o.UID, d.Pod.UID) == d.Pod.UID {
			d.Events = append(d.Events, *e)
		}
	}
	return d, nil
}

func (s *service) apply(w http.ResponseWriter, r *http.Request) (ApplyResult, error) {
	req, err := read[ApplyRequest](w, r, maxApply)
	if err != nil {
		return ApplyResult{}, err
	}
	if len(req.Data) > maxManifest {
		return ApplyResult{}, fmt.Errorf("apply %q: the manifest is longer than %d bytes: %w", req.File, maxManifest, errdefs.ErrInvalidArgument)
	}
	if len(req.File) > maxFile || len(req.Namespace) > maxName {
		return ApplyResult{}, fmt.Errorf("apply: the name of the file or namespace is too long: %w", errdefs.ErrInvalidArgument)
	}
	return s.agent.Apply(r.Context(), req)
}

func (s *service) delete(w http.ResponseWriter, r *http.Request) error {
	req, err := read[DeleteRequest](w, r, maxRequest)
	if err != nil {
		return err
	}
	if _, ok := FindResource(req.Kind); req.Manifests && (req.Key != manifest.Key{} || req.UID != "") || !req.Manifests && (!ok || req.Kind == KindEvent || req.Kind == KindManifest || req.Kind == KindNode) {
		return fmt.Errorf("delete %q: objects of kind %q cannot be deleted: %w", req.Name, req.Kind, errdefs.ErrInvalidArgument)
	}
	if g := req.GraceSeconds; g != nil && (*g < 0 || *g >= maxGrace) {
		return fmt.Errorf("delete %s: a grace period of %d s is not between 0 and %d: %w", req.Key, *g, maxGrace-1, errdefs.ErrInvalidArgument)
	}
	return s.agent.Delete(r.Context(), req)
}

// order is a request that asks the agent for something and is answered with nothing.
func order[Q any](do func(context.Context, Q) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := read[Q](w, r, maxRequest)
		if err == nil {
			err = do(r.Context(), req)
		}
		answer(w, struct{}{}, err)
	}
}

// shutdown answers when the pods are over, however long that takes.
func (s *service) shutdown(w http.ResponseWriter, r *http.Request) error {
	req, err := read[ShutdownRequest](w, r, maxRequest)
	if err != nil {
		return err
	}
	if s.power == nil {
		return fmt.Errorf("shut down pods: the agent cannot: %w", errdefs.ErrNotImplemented)
	}
	if req.Cancel {
		return s.power.CancelShutdown(r.Context())
	}
	control := http.NewResponseController(w)
	// The server's own times are for requests that end soon.
	if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
		return err
	}
	err = s.power.Shutdown(r.Context())
	return errors.Join(err, control.SetWriteDeadline(time.Now().Add(writeTime)))
}

// read decodes the one JSON value of a request's body, strictly.
func read[T any](w http.ResponseWriter, r *http.Request, most int64) (T, error) {
	var v T
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("read request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if d.More() {
		return v, fmt.Errorf("read request: there is more than one value: %w", errdefs.ErrInvalidArgument)
	}
	return v, nil
}

// failure is an error on its way; the class is the HTTP status.
type failure struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	data, err := encode(v)
	if err != nil {
		refuse(w, fmt.Errorf("encode answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(data); err != nil {
		panic(http.ErrAbortHandler) // the client is to see that the end is missing
	}
}

// encode is json.Marshal, which would read all objects of a list again.
func encode(v any) ([]byte, error) {
	l, ok := v.(*list)
	if !ok {
		return json.Marshal(v)
	}
	head, err := json.Marshal(list{TypeMeta: l.TypeMeta, Items: []json.RawMessage{}})
	if err != nil {
		return nil, err
	}
	data, tail := bytes.NewBuffer(nil), []byte("]}")
	data.Write(bytes.TrimSuffix(head, tail))
	for i, one := range l.Items {
		if i > 0 {
			data.WriteByte(',')
		}
		data.Write(one)
	}
	data.Write(tail)
	return data.Bytes(), nil
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	code := errhttp.ToHTTP(err)
	if errors.Is(err, errdefs.ErrAlreadyExists) {
		code = http.StatusConflict
	}
	data, err := json.Marshal(failure{Error: err.Error()})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(data); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// notFound is the error for an object that there is not, in Kubernetes' words.
func notFound(plural, name string) error {
	return &remote{fmt.Sprintf("%s %q not found", plural, name), errdefs.ErrNotFound}
}

// remote is an error with a class that its text does not name.
type remote struct {
	text  string
	class error
}

// Error is the text.
func (r *remote) Error() string { return r.text }

// Unwrap is the class.
func (r *remote) Unwrap() error { return r.class }
