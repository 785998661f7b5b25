package api

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

func TestWatch(t *testing.T) {
	f := newFake()
	c, _ := listen(t, f, Options{})
	got := make(chan string, 16)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		done <- c.Watch(ctx, resource(t, "pods"), Query{Namespace: "default"}, func(ch Change) error {
			var p corev1.Pod
			if ch.Type != Listed {
				if err := json.Unmarshal(ch.Object, &p); err != nil {
					return err
				}
			}
			got <- ch.Type + " " + p.Name + " " + string(p.UID) + " " + string(p.Status.Phase)
			return nil
		})
	}()
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case g := <-got:
				if g != w {
					t.Errorf("got %q, want %q", g, w)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("nothing comes, want %q", w)
			}
		}
	}
	expect("ADDED feed u1 Pending", "ADDED web u2 Running", "BOOKMARK   ")
	web := f.pods[1]
	f.set(pod("default", "feed", "u1", corev1.PodRunning, nil), web, pod("prod", "other", "u9", corev1.PodRunning, nil))
	expect("MODIFIED feed u1 Running")
	f.set(web)
	expect("DELETED feed u1 Running")
	// A pod of the same name that took its place is another one.
	f.set(pod("default", "web", "u4", corev1.PodPending, nil))
	expect("DELETED web u2 Running", "ADDED web u4 Pending")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestTooManyWatches(t *testing.T) {
	f := newFake()
	c, _ := listen(t, f, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range maxWatches {
		listed := make(chan struct{})
		wg.Go(func() {
			c.Watch(ctx, resource(t, "manifests"), Query{}, func(ch Change) error {
				if ch.Type == Listed {
					close(listed)
				}
				return nil
			})
		})
		<-listed
	}
	if err := c.Watch(ctx, resource(t, "pods"), Query{}, func(Change) error { return nil }); !errdefs.IsResourceExhausted(err) {
		t.Errorf("one too many: %v", err)
	}
	// The others are served all the same.
	if _, err := c.List(t.Context(), resource(t, "pods"), Query{}); err != nil {
		t.Error(err)
	}
}
