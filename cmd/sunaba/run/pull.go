package run

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/images"
)

// stillPulling is how often a pull in progress is reported.
const stillPulling = 5 * time.Second

// pullAll gets every image once and gives the containers its id.
func (r *runner) pullAll(ctx context.Context) error {
	have := map[string]*runtime.Image{}
	for _, c := range r.plan.all() {
		image, ok := have[c.image]
		if !ok {
			var err error
			if image, err = r.image(ctx, c.image, c.policy); err != nil {
				return err
			}
			have[c.image] = image
		}
		if err := checkNonRoot(c, image); err != nil {
			return err
		}
		nameUser(c, image)
		c.config.Image.Image = image.GetId()
	}
	return r.pullVolumes(ctx, have)
}

// pullVolumes gets the images that volumes show and names them in the mounts by their ids.
func (r *runner) pullVolumes(ctx context.Context, have map[string]*runtime.Image) error {
	for _, v := range r.plan.images {
		image, ok := have[v.reference]
		if !ok {
			var err error
			if image, err = r.image(ctx, v.reference, v.policy); err != nil {
				return err
			}
			have[v.reference] = image
		}
		for _, c := range r.plan.all() {
			for _, m := range c.config.GetMounts() {
				if m.GetImage().GetUserSpecifiedImage() == v.reference {
					m.Image.Image = image.GetId()
				}
			}
		}
	}
	return nil
}

// image answers an image, pulled as the policy says.
func (r *runner) image(ctx context.Context, name string, policy corev1.PullPolicy) (*runtime.Image, error) {
	spec := &runtime.ImageSpec{Image: name, UserSpecifiedImage: name, RuntimeHandler: r.plan.handler}
	if policy != corev1.PullAlways {
		image, err := r.imageStatus(ctx, spec)
		if err != nil {
			return nil, err
		}
		if image != nil {
			r.say("image %s is present (%s)", name, show.Size(int64(image.GetSize())))
			return image, nil
		}
		if policy == corev1.PullNever {
			return nil, fmt.Errorf("image %q is not present and imagePullPolicy is Never: %w", name, errdefs.ErrNotFound)
		}
	}
	began := time.Now()
	r.say("pulling %s", name)
	id, err := r.pull(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("pull image %q: %w", name, err)
	}
	took := time.Since(began)
	image, err := r.imageStatus(ctx, &runtime.ImageSpec{Image: id, UserSpecifiedImage: name, RuntimeHandler: r.plan.handler})
	if err != nil {
		return nil, err
	}
	if image == nil {
		return nil, fmt.Errorf("image %q was removed after it was pulled: %w", name, errdefs.ErrNotFound)
	}
	r.say("pulled %s: %s in %s (%.19s)", name, show.Size(int64(image.GetSize())), short(took), image.GetId())
	return image, nil
}

// pull pulls an image and returns its id. The server's socket for images tells how far it is; who
// may not use that, as it is root's alone, or talks to a server that has none, pulls without.
func (r *runner) pull(ctx context.Context, spec *runtime.ImageSpec) (id string, err error) {
	name := spec.GetImage()
	if store, err := control.Connect(ctx, r.imagesSocket()); err == nil {
		defer store.Close()
		progress := show.NewProgress(r.terminal, "sunaba: "+name)
		img, err := store.Pull(ctx, images.PullRequest{
			Ref: name, Handler: spec.GetRuntimeHandler(), Namespace: r.plan.sandbox.GetMetadata().GetNamespace(), Progress: progress.Show,
		})
		progress.End()
		return img.ID, err
	}
	began := time.Now()
	stop := r.every(stillPulling, func() { r.say("still pulling %s (%s)", name, time.Since(began).Round(time.Second)) })
	defer stop()
	resp, err := r.client.Images.PullImage(ctx, &runtime.PullImageRequest{Image: spec, SandboxConfig: r.plan.sandbox})
	return resp.GetImageRef(), dial.Native(err)
}

// imagesSocket is where the server says that its socket for images is.
func (r *runner) imagesSocket() string {
	var config struct{ StateDir string }
	if err := json.Unmarshal([]byte(r.client.Node.GetInfo()["config"]), &config); err != nil || config.StateDir == "" {
		return ""
	}
	return filepath.Join(config.StateDir, "images.sock")
}

// imageStatus answers nil for an image that is not there.
func (r *runner) imageStatus(ctx context.Context, spec *runtime.ImageSpec) (*runtime.Image, error) {
	resp, err := r.client.Images.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: spec})
	if err != nil {
		return nil, fmt.Errorf("ask for image %q: %w", spec.GetImage(), dial.Native(err))
	}
	return resp.GetImage(), nil
}

// every calls f again and again until stop is called, which waits for a call under way.
func (r *runner) every(d time.Duration, f func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() { close(done); <-ended }
}
