package imagegc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pass removes one image after the other: the first of those that choose returns at the time.
type pass struct {
	*Collector
	choose  func(Policy, time.Time) []Image
	removed int
	bytes   int64 // the sizes of the removed images
	// tried are the images whose removal was requested, by id, with the result.
	tried map[string]error
}

func newPass(c *Collector, choose func(Policy, time.Time) []Image) *pass {
	return &pass{Collector: c, choose: choose, tried: map[string]error{}}
}

// remove looks anew and removes one image. tried says that there was one.
func (x *pass) remove(ctx context.Context) (tried bool, err error) {
	err = x.o.Alone(func() error {
		if err := x.look(ctx); err != nil {
			return err
		}
		list := x.choose(x.o.Policy, x.o.Now())
		i := slices.IndexFunc(list, func(img Image) bool { _, again := x.tried[img.ID]; return !again })
		if i < 0 {
			return nil
		}
		tried = true
		img := list[i]
		_, err := x.o.CRI.RemoveImage(ctx, &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: img.ID, RuntimeHandler: img.Handler}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errdefs.IsNotFound(err) {
			err = nil
		}
		if x.tried[img.ID] = err; err != nil {
			return nil
		}
		x.removed++
		x.bytes += img.Size
		x.o.Logger.Info("unused image removed", "image", img.ID, "names", img.Names, "bytes", img.Size)
		return nil
	})
	return tried, err
}

// errors are those of the images whose removal failed.
func (x *pass) errors() error {
	var list []error
	for _, id := range slices.Sorted(maps.Keys(x.tried)) {
		if err := x.tried[id]; err != nil {
			list = append(list, fmt.Errorf("image %q: %w", id, err))
		}
	}
	return utilerrors.NewAggregate(list)
}

// failure is what a kubelet says of them.
func (x *pass) failure(wanted int64) error {
	if err := x.errors(); err != nil {
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", wanted, x.bytes, err)
	}
	return nil
}

// look takes in which images are there and which are used: by a container, also a dead one, or by
// an object that names them.
func (c *Collector) look(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	list, err := c.o.CRI.ListImages(ctx, &runtime.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	images := make([]Image, 0, len(list.GetImages()))
	for _, i := range list.GetImages() {
		images = append(images, Image{
			ID: i.GetId(), Handler: i.GetSpec().GetRuntimeHandler(), Names: slices.Concat(i.GetRepoTags(), i.GetRepoDigests()),
			Size: int64(i.GetSize()), Pinned: i.GetPinned(),
		})
	}
	used := map[string]bool{}
	if err := c.addContainers(ctx, used); err != nil {
		return err
	}
	if err := c.addNamed(ctx, used); err != nil {
		return err
	}
	c.book.Look(images, func(i Image) bool {
		return used[i.ID] || slices.ContainsFunc(i.Names, func(name string) bool { return used[name] })
	}, c.o.Now())
	return nil
}

// addContainers adds the ids of the images of all containers, and of those that are mounted in one.
func (c *Collector) addContainers(ctx context.Context, used map[string]bool) error {
	list, err := c.o.CRI.ListContainers(ctx, &runtime.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, r := range list.GetContainers() {
		used[r.GetImageId()] = true
		status, err := c.o.CRI.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: r.GetId()})
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("get container status: %w", err)
		}
		for _, m := range status.GetStatus().GetMounts() {
			if m.GetImage() != nil {
				used[m.GetImage().GetImage()] = true
			}
		}
	}
	return nil
}

// addNamed adds the ids and all names of the images that objects name: a name may stand for a
// variant of the image for each handler, which have it in common.
func (c *Collector) addNamed(ctx context.Context, used map[string]bool) error {
	names, err := c.o.Named(ctx)
	if err != nil {
		return fmt.Errorf("ask which images objects name: %w", err)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		resp, err := c.o.CRI.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: name}})
		switch {
		case errdefs.IsNotFound(err), errdefs.IsInvalidArgument(err), err == nil && resp.GetImage() == nil:
			continue // not here, or no name at all
		case err != nil:
			return fmt.Errorf("ask for image %q: %w", name, err)
		}
		used[resp.GetImage().GetId()] = true
		for _, also := range slices.Concat(resp.GetImage().GetRepoTags(), resp.GetImage().GetRepoDigests()) {
			used[also] = true
		}
	}
	return nil
}

// space is the room of the image file system, or of the budget if that is less.
func (c *Collector) space(ctx context.Context) (Space, error) {
	info, err := c.o.CRI.ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
	if err != nil {
		return Space{}, fmt.Errorf("ask for image file system: %w", err)
	}
	if len(info.GetImageFilesystems()) == 0 {
		return Space{}, fmt.Errorf("ask for image file system: the server tells none: %w", errdefs.ErrUnavailable)
	}
	fs := info.GetImageFilesystems()[0]
	s, err := c.o.room(fs.GetFsId().GetMountpoint())
	return s.within(c.o.Budget, int64(fs.GetUsedBytes().GetValue())), err
}
