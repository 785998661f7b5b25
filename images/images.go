// Package images turns a reference and a platform preference into a verified, unpacked root
// filesystem or a WebAssembly module.
//
// # Life of an image
//
// Pull resolves a reference (one request) and reads the index. variant.Select chooses the manifest
// for each runtime handler. Missing content is fetched, verified and unpacked to overlayfs layers,
// and Options.Arrived is called for a new WebAssembly module. The records are written last, so all
// that they name is on disk. An image is found by its id (the digest of its configuration), by tag
// and by digest. One reference may stand for several images, one per chosen platform.
//
// PrepareRootFS creates a container's root under a key of its own. Until RemoveRootFS the key keeps
// layers and module, also when the image itself is removed.
//
// # Errors
//
// Errors carry the classes of github.com/containerd/errdefs, except one: the text of an unreachable
// registry starts with "RegistryUnavailable: ". The kubelet compares that prefix, so callers must
// return such an error without words in front of it.
//
// # Packages
//
// A Service opens the store and calls pull, push, retain, archive, check and rootfs. They use
// catalog (which images exist), access (who may use them), transfer (content from one source) and
// disk (records, blobs and layers).
package images

import (
	"context"
	"log/slog"
	"time"

	"github.com/sunaba-project/sunaba/images/access"
	"github.com/sunaba-project/sunaba/images/archive"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/check"
	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/pull"
	"github.com/sunaba-project/sunaba/images/push"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/rootfs"
	"github.com/sunaba-project/sunaba/images/variant"
)

// What callers give to a Service and get from it.
type (
	Image            = catalog.Image
	HandlerPlatforms = variant.Handler
	PullRequest      = pull.Request
	PushRequest      = push.Request
	Pushed           = push.Result
	Progress         = progress.Progress
	ImportRequest    = archive.Request
	Export           = archive.Export
	ModuleFile       = rootfs.ModuleFile
	Verification     = access.Verification
	CheckReport      = check.Report
	Garbage          = retain.Garbage
	Prepared         = retain.Prepared
	Sight            = retain.Sight
	Usage            = disk.Usage
)

// See the packages that these come from.
const (
	Module        = catalog.Module
	MaxModule     = pull.MaxModule
	VerifyNever   = access.Never
	VerifyPrivate = access.Private
	VerifyAlways  = access.Always
)

// Options configures a Service.
type Options struct {
	// Root is the directory of the image store, on a filesystem that overlayfs can be used on.
	Root string
	// Handlers are the configured handlers; exactly one is the default.
	Handlers []HandlerPlatforms
	Registry registry.Options
	// Verification says who may use an image that is present; "" is VerifyNever.
	Verification Verification
	// Arrived is called when a WebAssembly module is new in the store, with its
	// host path (valid during the call) and digest, once per content. An error
	// of class ErrInvalidArgument refuses the image, any other is logged.
	Arrived func(ctx context.Context, path, digest string) error
	// Departed is called with the digest of a module that Arrived was called for, once no image, no
	// container and no pull needs it. A failure is retried, by the next process too.
	Departed func(ctx context.Context, digest string) error
	// Pulled is called at the end of each pull with the bytes that it fetched; it may be nil. Equal
	// pulls at one time are one. The text of an unreachable registry starts with
	// registry.UnavailablePrefix.
	Pulled func(took time.Duration, bytes int64, err error)
	// Prepared returns what is kept of modules beside the store, so that GC finds what no image has
	// brought. Departed removes it.
	Prepared func(ctx context.Context) ([]Prepared, error)
	// KeepLayers keeps layers as they were transferred beside their files, so that
	// an image can be exported without its registry.
	KeepLayers bool
	// Budget bounds the room that images take together, in bytes; 0 is no bound.
	// A pull that would go beyond fails.
	Budget int64
	// Pinned are path.Match patterns of names, except that "*" also matches
	// slashes. The kubelet's garbage collection does not remove these images.
	Pinned []string
	// MaxLayerSize bounds what one layer unpacks to, in bytes; 0 is 64 GiB.
	MaxLayerSize int64
	Logger       *slog.Logger
}

// Verifications are all values of Options.Verification.
func Verifications() []string { return access.Verifications() }
