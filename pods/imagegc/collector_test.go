package imagegc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// world is a node with a disk of 1000 bytes.
type world struct {
	images     []*runtime.Image
	containers map[string]*runtime.ContainerStatus
	other      int64 // bytes that are not of images
	named      []string
	broken     map[string]error // removals that fail, by id
	listError  error
	removed    []string
	events     []string
	alone      bool
	beforeEach func(id string)
}

func (w *world) used() int64 {
	n := int64(0)
	for _, i := range w.images {
		n += int64(i.Size)
	}
	return n
}

func (w *world) ListImages(context.Context, *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	return &runtime.ListImagesResponse{Images: slices.Clone(w.images)}, w.listError
}

func (w *world) ImageStatus(_ context.Context, r *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	if strings.ToLower(r.Image.Image) != r.Image.Image {
		return nil, fmt.Errorf("no name: %w", errdefs.ErrInvalidArgument)
	}
	for _, i := range w.images {
		if i.Id == r.Image.Image || slices.Contains(i.RepoTags, "docker.io/library/"+r.Image.Image) {
			return &runtime.ImageStatusResponse{Image: i}, nil
		}
	}
	return &runtime.ImageStatusResponse{}, nil
}

func (w *world) RemoveImage(_ context.Context, r *runtime.RemoveImageRequest) (*runtime.RemoveImageResponse, error) {
	if !w.alone {
		return nil, errors.New("an image is removed while others may learn of it")
	}
	if err := w.broken[r.Image.Image]; err != nil {
		return nil, err
	}
	w.removed = append(w.removed, r.Image.Image)
	w.images = slices.DeleteFunc(w.images, func(i *runtime.Image) bool { return i.Id == r.Image.Image })
	if w.beforeEach != nil {
		w.beforeEach(r.Image.Image)
	}
	return &runtime.RemoveImageResponse{}, nil
}

func (w *world) ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return &runtime.ImageFsInfoResponse{ImageFilesystems: []*runtime.FilesystemUsage{{
		FsId: &runtime.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: &runtime.UInt64Value{Value: uint64(w.used())},
	}}}, nil
}

func (w *world) ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	resp := &runtime.ListContainersResponse{}
	for id, s := range w.containers {
		resp.Containers = append(resp.Containers, &runtime.Container{Id: id, ImageId: s.ImageId})
	}
	return resp, nil
}

func (w *world) ContainerStatus(_ context.Context, r *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	return &runtime.ContainerStatusResponse{Status: w.containers[r.ContainerId]}, nil
}

func (w *world) collector(p Policy, budget int64) *Collector {
	return New(Options{
		CRI: w, Policy: p, Budget: budget, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Named: func(context.Context) ([]string, error) { return slices.Clone(w.named), nil },
		Alone: func(f func() error) error { w.alone = true; defer func() { w.alone = false }(); return f() },
		Tell:  func(reason, message string) { w.events = append(w.events, reason+": "+message) },
		room: func(dir string) (Space, error) {
			if dir != "/images" {
				return Space{}, fmt.Errorf("folder %q", dir)
			}
			return Space{Capacity: 1000, Available: 1000 - w.used() - w.other}, nil
		},
	})
}

func image(id string, size uint64, names ...string) *runtime.Image {
	for i := range names {
		names[i] = "docker.io/library/" + names[i]
	}
	return &runtime.Image{Id: id, Size: size, RepoTags: names}
}

func newWorld() *world {
	w := &world{containers: map[string]*runtime.ContainerStatus{}, broken: map[string]error{}, other: 550}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		w.images = append(w.images, image(id, 60, id+":1"))
	}
	return w
}

var usual = Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}

func (w *world) expect(t *testing.T, err error, wantErr string, removed ...string) {
	t.Helper()
	if (wantErr == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), wantErr) {
		t.Errorf("error %v, want %q", err, wantErr)
	}
	if !slices.Equal(w.removed, removed) {
		t.Errorf("removed %q, want %q", w.removed, removed)
	}
}

// GC1, IM13: five images with different last use on a full disk: the pinned and the used ones stay,
// of the others the least recently used go until there is room.
func TestCollect(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*world)
		budget  int64
		removed []string
		err     string
	}{
		"the oldest goes":             {removed: []string{"b"}},
		"not below high":              {change: func(w *world) { w.other = 540 }},
		"until low":                   {change: func(w *world) { w.other = 600 }, removed: []string{"b", "a"}},
		"a container's stays":         {change: func(w *world) { w.containers["x"] = &runtime.ContainerStatus{ImageId: "b"} }, removed: []string{"a"}},
		"a mounted one stays":         {change: func(w *world) { mount(w, "b") }, removed: []string{"a"}},
		"one that is named stays":     {change: func(w *world) { w.named = append(w.named, "b:1", "UPPER", "not-here") }, removed: []string{"a"}},
		"variants of the name stay":   {change: func(w *world) { w.images[0].RepoTags = w.images[1].RepoTags; w.named = append(w.named, "a:1", "b:1") }, removed: []string{"c"}},
		"the pinned stays":            {change: func(w *world) { w.images[1].Pinned = true }, removed: []string{"a"}},
		"one that cannot be removed":  {change: func(w *world) { w.broken["b"] = errors.New("busy") }, removed: []string{"a"}},
		"one that is gone":            {change: func(w *world) { w.broken["b"] = errdefs.ErrNotFound; w.images[1].Size = 0; w.other = 610 }, removed: []string{"a"}},
		"named while others are gone": {change: func(w *world) { w.other = 600; w.beforeEach = func(string) { w.named = append(w.named, "a:1") } }, removed: []string{"b", "c"}},
		"the budget is nearer":        {change: func(w *world) { w.other = 0 }, budget: 350, removed: []string{"b"}},
		"a list that fails":           {change: func(w *world) { w.listError = errors.New("no list") }, err: "list images: no list"},
		"not enough": {
			change: func(w *world) { w.other = 700; w.named = append(w.named, "d:1", "e:1") }, removed: []string{"b", "a", "c"},
			err: "Insufficient free disk space on the node's image filesystem (100% of 1000 B used). Failed to free sufficient space by deleting " +
				"unused images (freed 180 bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		},
		"not enough, with failures": {
			change: func(w *world) {
				w.other = 700
				w.named = append(w.named, "c:1", "d:1", "e:1")
				w.broken["b"] = errors.New("busy")
			},
			removed: []string{"a"}, err: `wanted to free 200 bytes, but freed 60 bytes space with errors in image deletion: image "b": busy`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				other := w.other
				w.other = 0
				g := w.collector(usual, c.budget)
				for _, used := range []string{"b", "a", "c", "d", "e"} { // one after the other
					w.named = []string{used + ":1"}
					if err := g.Collect(t.Context()); err != nil && c.budget == 0 {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Minute)
				}
				w.named, w.removed, w.events, w.other = nil, nil, nil, other
				if c.budget > 0 {
					w.images = newWorld().images
				}
				if c.change != nil {
					c.change(w)
				}
				err := g.Collect(t.Context())
				w.expect(t, err, c.err, c.removed...)
				told := len(w.events) > 0
				if want := strings.HasPrefix(c.err, "Insufficient"); told != want || told && w.events[0] != "FreeDiskSpaceFailed: "+c.err {
					t.Errorf("events %q", w.events)
				}
			})
		})
	}
}

func mount(w *world, image string) {
	w.containers["x"] = &runtime.ContainerStatus{Mounts: []*runtime.Mount{{}, {Image: &runtime.ImageSpec{Image: image}}}}
}

// GC1: an image that came a moment ago stays, whatever the room, and goes when it is old enough.
func TestYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.other = 700
		g := w.collector(usual, 0)
		w.expect(t, g.Collect(t.Context()), "Insufficient free disk space")
		time.Sleep(usual.MinAge - time.Second)
		if freed, err := g.Reclaim(t.Context()); freed || err != nil {
			t.Errorf("reclaimed %v, %v", freed, err)
		}
		time.Sleep(time.Second)
		w.expect(t, g.Collect(t.Context()), "", "a", "b", "c", "d")
	})
}

// GC1: max_age removes what was not used for long, whatever the room.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.other = 0
		g := w.collector(Policy{High: 100, Low: 80, MinAge: 2 * time.Minute, MaxAge: time.Hour}, 0)
		w.named = []string{"a:1", "b:1"}
		w.expect(t, g.Collect(t.Context()), "")
		time.Sleep(30 * time.Minute)
		w.images = append(w.images, image("f", 10, "f:1"))
		w.named = []string{"a:1"}
		w.expect(t, g.Collect(t.Context()), "")
		time.Sleep(31 * time.Minute)
		w.broken["c"] = errors.New("busy")
		w.expect(t, g.Collect(t.Context()), `wanted to free images older than 1h0m0s, encountered errors in image deletion: image "c": busy`, "d", "e", "b")
	})
}

// Reclaim removes all that is unused, whatever the room, and tells whether that was anything.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.other = 0
		w.named, w.images[2].Pinned = []string{"a:1"}, true
		g := w.collector(Policy{High: 100, Low: 80, MinAge: 2 * time.Minute}, 0)
		w.expect(t, g.Collect(t.Context()), "") // only looks
		time.Sleep(2 * time.Minute)
		freed, err := g.Reclaim(t.Context())
		w.expect(t, err, "", "b", "d", "e")
		if again, err := g.Reclaim(t.Context()); !freed || again || err != nil {
			t.Errorf("freed %v, then %v, %v", freed, again, err)
		}
		w.named, w.broken["a"] = nil, errors.New("busy")
		if freed, err = g.Reclaim(t.Context()); freed || err == nil || !strings.Contains(err.Error(), `image "a": busy`) {
			t.Errorf("freed %v, %v", freed, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		g.turn <- struct{}{}
		if _, err := g.Reclaim(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("without time: %v", err)
		}
	})
}

// GC1: collected every 5 minutes; only the second failure in a row is an event.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.other, w.listError = 600, errors.New("no list")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.collector(usual, 0).Run(ctx); close(ended) }()
		time.Sleep(4 * time.Minute)
		if len(w.events) > 0 {
			t.Errorf("events after one failure: %q", w.events)
		}
		time.Sleep(2 * time.Minute)
		if !slices.Equal(w.events, []string{"ImageGCFailed: list images: no list"}) {
			t.Errorf("events %q", w.events)
		}
		w.listError = nil
		time.Sleep(5 * time.Minute)
		w.expect(t, nil, "") // seen for the first time
		time.Sleep(5 * time.Minute)
		w.expect(t, nil, "", "a", "b")
		cancel()
		<-ended
	})
}
