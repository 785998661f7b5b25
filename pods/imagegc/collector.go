package imagegc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/space"
)

// every is the pause between two collections.
const every = 5 * time.Minute

// Reasons of events about the node.
const (
	imageGCFailed       = "ImageGCFailed"
	freeDiskSpaceFailed = "FreeDiskSpaceFailed"
	invalidDiskCapacity = "InvalidDiskCapacity"
)

// CRI are the calls that are needed of a CRI server. Its errors are of errdefs' classes.
type CRI interface {
	ListImages(context.Context, *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error)
	ImageStatus(context.Context, *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error)
	RemoveImage(context.Context, *runtime.RemoveImageRequest) (*runtime.RemoveImageResponse, error)
	ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error)
	ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error)
	ContainerStatus(context.Context, *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error)
}

// Options configure New.
type Options struct {
	CRI    CRI
	Policy Policy
	// Budget is how many bytes the images may take together; 0 is as many as there are.
	Budget int64
	// Named are the images that objects of this node name, as they name them. It is asked before
	// each removal.
	Named func(context.Context) ([]string, error)
	// Alone calls a function while nobody learns that an image is there, so that none is removed
	// between that and its use. Whoever learned it before must be in Named.
	Alone func(func() error) error
	// Tell records a warning about the node.
	Tell   func(reason, message string)
	Logger *slog.Logger
	Now    func() time.Time

	room func(dir string) (Space, error)
}

// Collector removes images. Its methods may be called at the same time.
type Collector struct {
	o    Options
	turn chan struct{} // held by the one that looks and removes
	book Book
}

// New returns a collector that has seen no image yet.
func New(o Options) *Collector {
	if o.room == nil {
		o.room = roomOf
	}
	return &Collector{o: o, turn: make(chan struct{}, 1)}
}

// roomOf is the room of the file system of a folder, after what was removed is given back.
func roomOf(dir string) (Space, error) {
	f, err := os.Open(dir)
	if err != nil {
		return Space{}, err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return Space{}, fmt.Errorf("synchronize the file system of %q: %w", dir, err)
	}
	size, err := space.Size(dir)
	if err != nil {
		return Space{}, err
	}
	free, err := space.Free(dir)
	return Space{Capacity: size, Available: free}, err
}

// Run collects every 5 minutes until the context ends. What fails once may succeed later: only the
// second failure in a row is told as an event, as a kubelet does.
func (c *Collector) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failed := false; ; timer.Reset(every) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		err := c.Collect(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.o.Logger.Error("failed to collect unused images", "error", err)
			if failed {
				c.o.Tell(imageGCFailed, err.Error())
			}
		}
		failed = err != nil
	}
}

// Collect removes images that were not used for too long, then, if the image file system is too
// full, the least recently used ones until it is not.
//
// # Errors
//
// Those of the CRI server; one that says that not enough could be made free, which is told as an
// event too.
func (c *Collector) Collect(ctx context.Context) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p := c.o.Policy
	if p.Off() { // what is seen counts when room is asked for
		return c.look(ctx)
	}
	old := newPass(c, c.book.Expired)
	for removed := true; removed; {
		if removed, err = old.remove(ctx); err != nil {
			return err
		}
	}
	if err := old.errors(); err != nil {
		return fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", p.MaxAge, err)
	}
	before, err := c.space(ctx)
	if err != nil {
		return err
	}
	if before.Capacity == 0 {
		const text = "invalid capacity 0 on image filesystem"
		c.o.Tell(invalidDiskCapacity, text)
		return errors.New(text)
	}
	missing := p.Missing(before)
	if missing <= 0 {
		return nil
	}
	c.o.Logger.Info("image file system is too full, removing unused images", "used_percent", before.Percent(), "missing_bytes", missing)
	freed, err := c.free(ctx, before, missing)
	if err != nil || freed >= missing {
		return err
	}
	text := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		before.Percent(), sizeText(before.Capacity), freed)
	c.o.Tell(freeDiskSpaceFailed, text)
	return errors.New(text)
}

// Reclaim removes all images that are not used, not pinned and older than the least age: the disk
// is about to be full. freed says that one was removed.
//
// # Errors
//
// Those of the CRI server. Images may have been removed nevertheless.
func (c *Collector) Reclaim(ctx context.Context) (freed bool, err error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	c.o.Logger.Info("removing all unused images")
	x := newPass(c, c.book.Unused)
	for more := true; more && err == nil; {
		more, err = x.remove(ctx)
	}
	if err == nil {
		err = x.failure(math.MaxInt64)
	}
	return x.removed > 0, err
}

// free removes images until so many bytes more are free than before, and says how many are. A
// kubelet adds up the sizes of the images; here they share layers, so the file system is asked.
func (c *Collector) free(ctx context.Context, before Space, missing int64) (freed int64, err error) {
	x := newPass(c, c.book.Unused)
	for more := true; more && freed < missing; {
		if more, err = x.remove(ctx); err != nil {
			return freed, err
		}
		after, err := c.space(ctx)
		if err != nil {
			return freed, err
		}
		freed = max(after.Available-before.Available, 0)
	}
	if freed >= missing {
		return freed, nil
	}
	return freed, x.failure(missing)
}

// enter waits until no other collection runs.
func (c *Collector) enter(ctx context.Context) (leave func(), err error) {
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
