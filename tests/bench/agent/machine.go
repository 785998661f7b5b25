package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// patience is how long anything is waited for.
const patience = 2 * time.Minute

// machine is a server, with the images of what is measured.
type machine struct {
	*node.Node
	ctx      context.Context
	guest    string // an image with a guest in C
	busybox  string
	client   *api.Client // of the agent, nil without one
	registry *oci.Registry
}

// setup is what a server is started with.
type setup struct {
	agent bool
	more  string // of its configuration
}

// on runs use with a server of its own, with an agent or without.
func (b *bench) on(ctx context.Context, agent bool, use func(*machine) error) error {
	return b.with(ctx, setup{agent: agent}, use)
}

// with runs use with a server of its own.
func (b *bench) with(ctx context.Context, s setup, use func(*machine) error) (err error) {
	m := &machine{ctx: ctx}
	dir := filepath.Join(b.dir, "node")
	for _, name := range []string{"manifests", "pod-logs", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	// As /run is.
	if err := unix.Mount("tmpfs", filepath.Join(dir, "state"), "tmpfs", 0, "mode=711"); err != nil {
		return err
	}
	config := fmt.Sprintf("[network]\nconf_dir = %q\n", filepath.Join(dir, "cni"))
	if s.agent {
		config += fmt.Sprintf("[pods]\nmanifests = [%q]\nlogs = %q\nmax_pods = 1000\n", filepath.Join(dir, "manifests"), filepath.Join(dir, "pod-logs"))
	}
	if m.Node, err = node.Start(ctx, node.Options{Bin: b.bin, Dir: dir, Config: config + s.more}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if m.registry, err = oci.Serve("127.0.0.1:0"); err != nil {
		return err
	}
	if err := m.push(); err != nil {
		return err
	}
	if s.agent {
		if err := m.connect(); err != nil {
			return err
		}
	}
	return use(m)
}

func (m *machine) connect() (err error) {
	if m.client != nil {
		m.client.Close()
	}
	m.client, err = m.PodClient(m.ctx)
	return err
}

func (m *machine) close() (err error) {
	if m.client != nil && m.Alive() {
		err = m.removeAll()
		m.client.Close()
	}
	if m.registry != nil {
		err = errors.Join(err, m.registry.Close())
	}
	removed := m.RemovePods(context.WithoutCancel(m.ctx))
	_, closed := m.Close()
	return errors.Join(err, removed, closed)
}

// push makes the images and pulls them.
func (m *machine) push() error {
	guest, err := oci.PackedC(m.ctx, "tests/criwasm/testdata/guest.c")
	if err != nil {
		return err
	}
	busybox, err := oci.Busybox(oci.Host(), v1.Config{})
	if err != nil {
		return err
	}
	for name, image := range map[string]v1.Image{"guest": guest, "busybox": busybox} {
		ref, err := m.registry.Push(m.ctx, "bench/"+name+":1", image)
		if err != nil {
			return err
		}
		if _, err := m.PullImage(m.ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}}); err != nil {
			return fmt.Errorf("pull %q: %w", ref, err)
		}
		if name == "guest" {
			m.guest = ref
		} else {
			m.busybox = ref
		}
	}
	return nil
}

// until asks again and again until a condition holds.
func (m *machine) until(what string, pause time.Duration, holds func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		done, err := holds()
		if err != nil || done {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not after %v\n%s", what, patience, tail(m.DaemonLog()))
		}
		if err := measure.Wait(m.ctx, pause); err != nil {
			return err
		}
	}
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// listed are the agent's pods.
func (m *machine) listed() ([]corev1.Pod, error) {
	pods, _ := api.FindResource("pods")
	return api.Objects[corev1.Pod](m.ctx, m.client, pods, api.Query{})
}

// awaitReady waits until so many pods are ready. It asks seldom, since answers cost the server
// time.
func (m *machine) awaitReady(count int) error {
	return m.until(fmt.Sprintf("%d pods are ready", count), 200*time.Millisecond, func() (bool, error) {
		pods, err := m.listed()
		n := 0
		for i := range pods {
			if isReady(&pods[i]) {
				n++
			}
		}
		return n == count && len(pods) == count, err
	})
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
