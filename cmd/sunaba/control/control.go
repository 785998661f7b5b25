// Package control lets a command line use the image store of a server that runs:
// it serves an images.Service on a unix socket, and is its client.
//
// CRI has no requests for importing, exporting, checking or collecting garbage, and tells nothing
// of a pull until it is done. The protocol is HTTP: a request is JSON, or an archive; a reply is
// lines of JSON, progress and then a result or an error, or an archive. It is between the two
// halves of one version and promises nothing to others.
package control

import (
	"context"
	"io"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/images"
)

// Store is what can be done with images, here or in a server.
type Store interface {
	Pull(ctx context.Context, req images.PullRequest) (images.Image, error)
	List(ctx context.Context) ([]images.Image, error)
	Find(ctx context.Context, nameOrID, handler string) (images.Image, error)
	Remove(ctx context.Context, nameOrID string) error
	Untag(ctx context.Context, nameOrID string, force bool) (removed bool, err error)
	Push(ctx context.Context, req images.PushRequest) (images.Pushed, error)
	Tag(ctx context.Context, source string, names []string) error
	Import(ctx context.Context, req images.ImportRequest) ([]images.Image, error)
	ExportTo(ctx context.Context, names []string, w io.Writer) error
	ReadModule(ctx context.Context, nameOrID, handler string, read func(images.ModuleFile, io.Reader) error) error
	Check(ctx context.Context, repair bool) (images.CheckReport, error)
	GC(ctx context.Context, dryRun bool) (images.Garbage, error)
}

// request is what a client asks for.
type request struct {
	Name    string   `json:"name,omitempty"`
	Names   []string `json:"names,omitempty"`
	Handler string   `json:"handler,omitempty"`
	// Namespace is that of the pod that a pull is for.
	Namespace string `json:"namespace,omitempty"`
	Path      string `json:"path,omitempty"`
	Repair    bool   `json:"repair,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
	Force     bool   `json:"force,omitempty"`
	// Dest is the name to push as; All refuses to push a part of the variants.
	Dest string `json:"dest,omitempty"`
	All  bool   `json:"all,omitempty"`
	// Auth are the credentials of a pull or a push.
	Auth []byte `json:"auth,omitempty"`
}

// line is a line of a reply.
type line[T any] struct {
	Progress *images.Progress `json:"progress,omitempty"`
	Error    *failure         `json:"error,omitempty"`
	Result   *T               `json:"result,omitempty"`
}

// failure is an error on its way.
type failure struct {
	Text  string `json:"text"`
	Class string `json:"class,omitempty"`
}

// classes are the classes of errors that are told apart.
func classes() map[string]error {
	all := make(map[string]error)
	for _, c := range []error{
		errdefs.ErrInvalidArgument, errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrFailedPrecondition, errdefs.ErrPermissionDenied,
		errdefs.ErrUnauthenticated, errdefs.ErrResourceExhausted, errdefs.ErrDataLoss, errdefs.ErrUnavailable, errdefs.ErrNotImplemented,
	} {
		all[c.Error()] = c
	}
	return all
}

func fail(err error) *failure {
	return &failure{Text: err.Error(), Class: errdefs.Resolve(err).Error()}
}

// remote is an error that a server told.
type remote struct {
	text  string
	class error
}

func (r *remote) Error() string { return r.text }
func (r *remote) Unwrap() error { return r.class }

func (f *failure) err() error { return &remote{f.Text, classes()[f.Class]} }
