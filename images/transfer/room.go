package transfer

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/disk"
)

// Room is what running transfers have taken and are about to take of the budget of images.
type Room struct {
	disk   *disk.Disk
	budget int64 // in bytes; 0 is no bound

	mu     sync.Mutex
	pulls  int
	before int64 // what images took when the first of them started, and what has been added since
	taken  int64 // by running transfers
}

// NewRoom returns the room of an image store. budget bounds what images take together, in bytes; 0
// is no bound.
func NewRoom(d *disk.Disk, budget int64) *Room { return &Room{disk: d, budget: budget} }

// Taken returns how many running transfers have taken room, and how many bytes.
func (r *Room) Taken() (transfers int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls, r.taken
}

// Take makes sure of room for blobs that are to be fetched: on the disk, for what has not come yet,
// and in the budget.
//
// # Errors
//
// ErrResourceExhausted if there is less.
func (x *Transfer) Take(ctx context.Context, blobs ...ocispec.Descriptor) error {
	var total, missing int64
	for _, b := range blobs {
		total += b.Size
		missing += max(0, b.Size-x.content.Came(b.Digest))
	}
	if err := x.room.find(missing); err != nil {
		return err
	}
	return x.Reserve(ctx, total)
}

// find makes sure that the disk has room, if need be by dropping the parts of blobs that no pull
// fetches now. If statfs fails nothing is checked; a full disk then fails the write.
func (r *Room) find(bytes int64) error {
	free, err := space.Free(r.disk.Root)
	if err != nil || bytes <= free {
		return nil
	}
	if err := r.disk.Content.SweepIngests(0); err != nil {
		return err
	}
	if free, err = space.Free(r.disk.Root); err != nil || bytes <= free {
		return nil
	}
	return fmt.Errorf("%d bytes are to be fetched, and the filesystem of %q has no room (%d bytes free); remove images or containers: %w",
		bytes, r.disk.Root, free, errdefs.ErrResourceExhausted)
}

// Reserve takes room from the budget for a transfer, until it is closed.
//
// # Errors
//
// ErrResourceExhausted if that is more than there is.
func (x *Transfer) Reserve(ctx context.Context, bytes int64) error {
	r := x.room
	if r.budget <= 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.closed {
		return nil // another pull continues a layer that this one started
	}
	if !x.reserving {
		if r.pulls == 0 {
			images, _, err := r.disk.Usage(ctx)
			if err != nil {
				return err
			}
			r.before = images.Bytes
		}
		r.pulls++
		x.reserving = true
	}
	if have := r.before + r.taken; have+bytes > r.budget {
		return fmt.Errorf("images take %d bytes, %d more are needed and their budget is %d (images.budget_mib): remove images, or raise it: %w",
			have, bytes, r.budget, errdefs.ErrResourceExhausted)
	}
	r.taken += bytes
	x.reserved += bytes
	return nil
}

// release gives room back; what has been recorded keeps its room.
func (x *Transfer) release() {
	r := x.room
	r.mu.Lock()
	defer r.mu.Unlock()
	x.closed = true
	if !x.reserving {
		return
	}
	r.taken -= x.reserved
	if x.recorded {
		r.before += x.reserved
	}
	r.pulls--
	x.reserving, x.reserved = false, 0
}
