package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// imageAPI answers the requests about images.
type imageAPI struct {
	unansweredImages
	images    *images.Service
	handlers  *runtimeclass.Table
	sandboxes liveSandboxes
}

// liveSandboxes finds the sandbox that a pull is for, by its configuration.
type liveSandboxes interface {
	FindLive(*runtime.PodSandboxConfig) (state.Sandbox, bool)
}

// unansweredImages is there so that a newer CRI can be compiled against.
type unansweredImages struct {
	runtime.UnimplementedImageServiceServer
}

func (a *imageAPI) PullImage(ctx context.Context, r *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	if r.GetImage().GetImage() == "" {
		return nil, fmt.Errorf("pull image: the reference is empty: %w", errdefs.ErrInvalidArgument)
	}
	handler, err := a.pullHandler(r)
	if err != nil {
		return nil, err
	}
	img, err := a.images.Pull(ctx, images.PullRequest{
		Ref: r.GetImage().GetImage(), Handler: handler, Auth: credentials(r.GetAuth()),
		Namespace: r.GetSandboxConfig().GetMetadata().GetNamespace(),
	})
	if err != nil {
		return nil, err
	}
	if id, ok := a.images.Answer(r.GetImage().GetImage()); ok {
		return &runtime.PullImageResponse{ImageRef: id}, nil
	}
	return &runtime.PullImageResponse{ImageRef: img.ID}, nil // removed meanwhile
}

// pullHandler says which handler an image is for: the one asked for, else that of the live sandbox
// that the request names, else "" for the best match of each.
func (a *imageAPI) pullHandler(r *runtime.PullImageRequest) (string, error) {
	if name := r.GetImage().GetRuntimeHandler(); name != "" {
		h, err := a.handlers.Lookup(name)
		return h.Name, err
	}
	if r.GetSandboxConfig().GetMetadata() != nil {
		if rec, ok := a.sandboxes.FindLive(r.GetSandboxConfig()); ok {
			return rec.HandlerName, nil
		}
	}
	return "", nil
}

func credentials(a *runtime.AuthConfig) registry.Credentials {
	return registry.Credentials{
		Username: a.GetUsername(), Password: a.GetPassword(), Auth: a.GetAuth(), ServerAddress: a.GetServerAddress(),
		IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken(),
	}
}

func (a *imageAPI) ListImages(ctx context.Context, r *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	items, err := a.list(ctx, r.GetFilter().GetImage())
	return &runtime.ListImagesResponse{Images: items}, err
}

func (a *imageAPI) StreamImages(r *runtime.StreamImagesRequest, out runtime.ImageService_StreamImagesServer) error {
	items, err := a.list(out.Context(), r.GetFilter().GetImage())
	if err != nil {
		return err
	}
	return inBatches(items, func(part []*runtime.Image) error { return out.Send(&runtime.StreamImagesResponse{Images: part}) })
}

func (a *imageAPI) list(ctx context.Context, filter *runtime.ImageSpec) ([]*runtime.Image, error) {
	items := []*runtime.Image{}
	if filter.GetImage() != "" {
		img, err := a.images.Find(ctx, filter.GetImage(), filter.GetRuntimeHandler())
		if errdefs.IsNotFound(err) {
			return items, nil
		}
		return append(items, a.item(img, filter.GetRuntimeHandler())), err
	}
	all, err := a.images.List(ctx)
	for _, img := range all {
		items = append(items, a.item(img, ""))
	}
	return items, err
}

func (a *imageAPI) ImageStatus(ctx context.Context, r *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	if r.GetImage().GetImage() == "" {
		return nil, fmt.Errorf("look up image: the reference is empty: %w", errdefs.ErrInvalidArgument)
	}
	img, answer, err := a.status(ctx, r.GetImage().GetImage(), r.GetImage().GetRuntimeHandler())
	if errdefs.IsNotFound(err) {
		return &runtime.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &runtime.ImageStatusResponse{Image: a.item(img, r.GetImage().GetRuntimeHandler())}
	resp.Image.Id = answer
	if r.GetVerbose() {
		config, _ := a.images.Configuration(ctx, img)
		if !json.Valid(config) {
			config = nil // null: it was damaged, and the rest is worth showing
		}
		info, err := json.Marshal(map[string]any{
			"imageSpec": json.RawMessage(config),
			"platform":  platforms.FormatAll(img.Platform), "kind": img.Kind.String(), "handlers": img.Handlers, "manifest": img.Manifest, "served": img.Served,
		})
		if err != nil {
			return nil, fmt.Errorf("describe image %q: %w", img.ID, err)
		}
		resp.Info = map[string]string{"info": string(info)}
	}
	return resp, nil
}

// status finds an image and the id to tell: of a reference the one that a pull of it has told,
// whatever the handler.
func (a *imageAPI) status(ctx context.Context, name, handler string) (img images.Image, answer string, err error) {
	answer, named := a.images.Answer(name)
	if named && handler == "" {
		name = answer
	}
	if img, err = a.images.Find(ctx, name, handler); !named {
		answer = img.ID
	}
	return img, answer, err
}

func (a *imageAPI) RemoveImage(ctx context.Context, r *runtime.RemoveImageRequest) (*runtime.RemoveImageResponse, error) {
	if r.GetImage().GetImage() == "" {
		return nil, fmt.Errorf("remove image: the reference is empty: %w", errdefs.ErrInvalidArgument)
	}
	return &runtime.RemoveImageResponse{}, a.images.Remove(ctx, r.GetImage().GetImage())
}

func (a *imageAPI) ImageFsInfo(ctx context.Context, _ *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	imgs, containers, err := a.images.FsUsage(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &runtime.ImageFsInfoResponse{
		ImageFilesystems:     []*runtime.FilesystemUsage{usageOf(imgs, now)},
		ContainerFilesystems: []*runtime.FilesystemUsage{usageOf(containers, now)},
	}, nil
}

func usageOf(u images.Usage, at time.Time) *runtime.FilesystemUsage {
	return &runtime.FilesystemUsage{
		Timestamp: at.UnixNano(), FsId: &runtime.FilesystemIdentifier{Mountpoint: u.Path},
		UsedBytes: value(uint64(u.Bytes)), InodesUsed: value(uint64(u.Inodes)),
	}
}

func value(n uint64) *runtime.UInt64Value { return &runtime.UInt64Value{Value: n} }

// item is an image as an answer to a request for a handler, "" for no certain one.
func (a *imageAPI) item(img images.Image, asked string) *runtime.Image {
	item := imageItem(img)
	item.Spec.RuntimeHandler = specHandler(img.Handlers, asked, a.handlers.Default().Name)
	return item
}

// specHandler is the one handler that an image's entry names, of those that choose it: the one
// asked for, else "", which stands for the default one, else the first. There is one entry for each
// id, also where several handlers choose it.
func specHandler(handlers []string, asked, byDefault string) string {
	switch {
	case asked != "" && slices.Contains(handlers, asked):
		return asked
	case len(handlers) == 0, slices.Contains(handlers, byDefault):
		return ""
	}
	return handlers[0]
}

func imageItem(img images.Image) *runtime.Image {
	item := &runtime.Image{
		Id: img.ID, RepoTags: img.RepoTags, RepoDigests: img.RepoDigests, Size: uint64(img.Size), Pinned: img.Pinned,
		Spec: &runtime.ImageSpec{Image: img.ID},
	}
	user, _, _ := strings.Cut(img.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		item.Uid = &runtime.Int64Value{Value: uid}
	} else {
		item.Username = user
	}
	return item
}
