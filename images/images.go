// Package images turns a reference and a platform preference into a verified,
// unpacked root filesystem or a WebAssembly module.
//
// # Life of an image
//
// Pull resolves a reference (one request), reads the index, lets Select choose
// the manifest that each runtime handler wants, fetches and verifies what is
// missing, unpacks it to overlayfs layers, calls Options.Arrived for a new
// WebAssembly module, and only then writes the records, once everything they
// name is on disk. From then on the image is found by its id (the digest of its
// configuration), by tag and by digest. One reference may stand for several
// images: one per platform that a handler chose.
//
// A container takes its root with PrepareRootFS under a key of its own. The key
// keeps layers and module alive until RemoveRootFS, also when the image itself
// has been removed.
//
// # Errors
//
// Errors carry the classes of github.com/containerd/errdefs. One kind has none
// on purpose: an unreachable registry, whose text begins with
// "RegistryUnavailable: ". The kubelet compares that beginning, so callers must
// hand such an error on without putting words in front of it.
package images

import (
	"context"
	"log/slog"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/variant"
)

// Kind says what an image consists of.
type Kind int

const (
	// RootFS is an image with a root filesystem made of layers.
	RootFS Kind = iota
	// Module is a WebAssembly artifact: one module and no filesystem.
	Module
)

// String returns "rootfs" or "module".
func (k Kind) String() string {
	if k == Module {
		return "module"
	}
	return "rootfs"
}

// Image is one image of one platform, as it is in the store now.
type Image struct {
	// ID is the digest of the image's configuration. An artifact whose
	// configuration does not name its layer has its manifest's digest instead,
	// because such a configuration is the same for different modules.
	ID string
	// RepoTags and RepoDigests are the full names that lead to this image,
	// sorted. A digest is that of the manifest or index a name resolved to.
	RepoTags, RepoDigests []string
	// Platform is the image's own platform; wasip1/wasm for a Module.
	Platform ocispec.Platform
	// Config holds entrypoint, environment, user and the like; empty for an
	// artifact without an image configuration.
	Config ocispec.ImageConfig
	Kind   Kind
	// Size is the size of configuration and layers as transferred, in bytes.
	Size   int64
	Pinned bool
	// Handlers are the configured handlers that choose this variant, sorted.
	Handlers []string
	// Served names the content that each server gave when the image was pulled:
	// digests, sorted, by host. What had been present is in none.
	Served   map[string][]digest.Digest
	Manifest ocispec.Descriptor
	// Module is the WebAssembly module when Kind is Module. Its file's name, if the
	// artifact tells one, is its annotation org.opencontainers.image.title.
	Module ocispec.Descriptor
	// Checkpoint names the container whose checkpoint the image is: its files are
	// those of a checkpoint's archive. "" for an image that can be run.
	Checkpoint string
	// Program is the module at the entrypoint of an image with files, "" if there is none.
	Program digest.Digest
	// Created is when the image was built; zero if it does not say.
	Created time.Time
}

// HandlerPlatforms is a runtime handler and the platforms it runs, best first.
type HandlerPlatforms = variant.Handler

// NoMatchError says that none of the platforms wanted is among those there are.
// Its class is ErrFailedPrecondition.
type NoMatchError = variant.NoMatchError

// Options configures a Service.
type Options struct {
	// Root is the directory of the image store, on a filesystem that overlayfs
	// can be used on.
	Root string
	// Handlers are the configured handlers; exactly one is the default.
	Handlers []HandlerPlatforms
	Registry registry.Options
	// ParallelLayers is how many layers one pull fetches at a time; 0 means
	// DefaultParallelLayers.
	ParallelLayers int
	// Verification says who may use an image that is present; "" is VerifyNever.
	Verification Verification
	// Arrived is called when a WebAssembly module is new in the store, with its
	// host path (valid during the call) and digest, once per content. An error
	// of class ErrInvalidArgument refuses the image, any other is logged.
	Arrived func(ctx context.Context, path, digest string) error
	// Departed is called with the digest of a module that Arrived was called for, once no image, no container and no pull
	// needs it. What fails is tried again, by the next process too.
	Departed func(ctx context.Context, digest string) error
	// Prepared returns what is kept of modules beside the store, so that GC finds what no image has brought. Departed
	// removes it.
	Prepared func(ctx context.Context) ([]Prepared, error)
	// KeepLayers keeps layers as they were transferred beside their files, so that
	// an image can be exported without its registry.
	KeepLayers bool
	// Budget bounds the room that images take together, in bytes; 0 is no bound.
	// A pull that would go beyond fails.
	Budget int64
	// Pinned are patterns of names, as path.Match knows them but for "*", which
	// matches slashes too: images that nobody is to remove for their room.
	Pinned []string
	// MaxLayerSize bounds what one layer unpacks to, in bytes; 0 is 64 GiB.
	MaxLayerSize int64
	Logger       *slog.Logger
}

// Prepared is what is kept of one module beside the store: compiled code.
type Prepared struct {
	Digest digest.Digest
	Bytes  int64
	// Used is when it was made or taken last, to the hour.
	Used time.Time
	// Running says that a process has it in use.
	Running bool
}

// PullRequest says what to pull and for whom.
type PullRequest struct {
	Ref string
	// Handler is the runtime handler that the image is for; "" fetches the best
	// match of every configured handler.
	Handler string
	Auth    registry.Credentials
	// Namespace is that of the pod that the pull is for; "" is no pod's. See
	// Service.Permit.
	Namespace string
	// Progress, when set, is called from one goroutine at a time, a few times a
	// second, and must not block.
	Progress func(Progress)
}

// Progress is the state of a pull.
type Progress = progress.Progress

// Part is the progress of one layer or module.
type Part = progress.Part

// Usage is the room that something takes on the filesystem of Path.
type Usage struct {
	Path          string
	Bytes, Inodes int64
}
