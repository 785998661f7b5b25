package images

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// store is an image service in memory.
type store struct {
	mu         sync.Mutex
	here       map[string]bool
	pulls      []string // image and user
	handlers   []string // of pulls
	busy, most int      // pulls at once
	took       time.Duration
	fail       func(user string) error
	inspect    error
}

func (s *store) ImageStatus(_ context.Context, r *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inspect != nil || !s.here[r.Image.Image] {
		return &runtime.ImageStatusResponse{}, s.inspect
	}
	return &runtime.ImageStatusResponse{Image: &runtime.Image{Id: r.Image.Image, Size: 5}}, nil
}

func (s *store) PullImage(ctx context.Context, r *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	s.mu.Lock()
	s.pulls = append(s.pulls, r.Image.Image+" "+r.GetAuth().GetUsername())
	s.handlers = append(s.handlers, r.Image.RuntimeHandler)
	s.busy++
	s.most = max(s.most, s.busy)
	fail := s.fail
	s.mu.Unlock()
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if fail != nil {
		if err := fail(r.GetAuth().GetUsername()); err != nil {
			return nil, err
		}
	}
	s.here[r.Image.Image] = true
	return &runtime.PullImageResponse{ImageRef: r.Image.Image}, nil
}

// asker asks for images and keeps what it was told.
type asker struct {
	m       *Manager
	pod     *corev1.Pod
	handler string
	mu      sync.Mutex
	told    []string
}

func newAsker(m *Manager, uid string, secrets ...string) *asker {
	a := &asker{m: m, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default"}}}
	for _, s := range secrets {
		a.pod.Spec.ImagePullSecrets = append(a.pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return a
}

func (a *asker) ask(ctx context.Context, image string, policy corev1.PullPolicy) *Error {
	_, err := a.m.Ensure(ctx, Request{Pod: a.pod, Image: image, Handler: a.handler, Policy: policy, Tell: func(kind, reason, message string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.told = append(a.told, kind+" "+reason+": "+message)
	}})
	var known *Error
	if err != nil && !errors.As(err, &known) {
		known = &Error{Reason: "other", Message: err.Error()}
	}
	return known
}

func (a *asker) heard(text string) bool { return slices.Contains(a.told, text) }

func manager(s *store, o Options) *Manager {
	o.CRI, o.Now = s, time.Now
	if o.Secret == nil {
		o.Secret = func(string, string) (*corev1.Secret, bool) { return nil, false }
	}
	return New(o)
}

// IM2, IM8: what a policy does with an image that is here and with one that is not.
func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		policy       corev1.PullPolicy
		here         bool
		pulls        int
		reason, told string
	}{
		{corev1.PullIfNotPresent, true, 0, "", `Normal Pulled: Container image "a" already present on machine and can be accessed by the pod`},
		{corev1.PullIfNotPresent, false, 1, "", `Normal Pulled: Successfully pulled image "a" in 1.2s (1.2s including waiting). Image size: 5 bytes.`},
		{corev1.PullNever, true, 0, "", `Normal Pulled: Container image "a" already present on machine and can be accessed by the pod`},
		{corev1.PullNever, false, 0, ErrImageNeverPull, `Warning ErrImageNeverPull: Container image "a" is not present with pull policy of Never`},
		{corev1.PullAlways, true, 1, "", `Normal Pulling: Pulling image "a"`},
		{corev1.PullAlways, false, 1, "", `Normal Pulling: Pulling image "a"`},
	} {
		t.Run(fmt.Sprint(tt.policy, tt.here), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{here: map[string]bool{"a": tt.here}, took: 1200 * time.Millisecond}
				a := newAsker(manager(s, Options{}), "1")
				reason := ""
				if err := a.ask(t.Context(), "a", tt.policy); err != nil {
					reason = err.Reason
				}
				if reason != tt.reason || len(s.pulls) != tt.pulls || !a.heard(tt.told) {
					t.Errorf("reason %q, %d pulls, told %q", reason, len(s.pulls), a.told)
				}
			})
		})
	}
}

// IM4: ErrImagePull, then ImagePullBackOff for 10, 20, 40 … 300 s; forgotten after 600 s.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{here: map[string]bool{}, fail: func(string) error { return errors.New("no route") }}
		a := newAsker(manager(s, Options{}), "1")
		for i, want := range []int{10, 20, 40, 80, 160, 300, 300} {
			err := a.ask(t.Context(), "a", corev1.PullIfNotPresent)
			if err == nil || err.Reason != ErrImagePull || err.Message != "no route" || err.Retry != shown {
				t.Fatalf("try %d: %+v", i, err)
			}
			time.Sleep(err.Retry)
			err = a.ask(t.Context(), "a", corev1.PullIfNotPresent)
			if err == nil || err.Reason != ImagePullBackOff || err.Message != `Back-off pulling image "a": ErrImagePull: no route` ||
				err.Retry != time.Duration(want)*time.Second-shown {
				t.Fatalf("after try %d: %+v, want a pause of %d s", i, err, want)
			}
			time.Sleep(err.Retry)
		}
		if err := newAsker(a.m, "2").ask(t.Context(), "a", corev1.PullIfNotPresent); err.Reason != ErrImagePull {
			t.Errorf("another pod: %+v", err)
		}
		time.Sleep(601 * time.Second)
		a.ask(t.Context(), "a", corev1.PullIfNotPresent)
		if err := a.ask(t.Context(), "a", corev1.PullIfNotPresent); err.Retry != 10*time.Second {
			t.Errorf("pause %v after a long time, want the first one", err.Retry)
		}
		a.m.Forget("1")
		if err := a.ask(t.Context(), "a", corev1.PullIfNotPresent); err.Reason != ErrImagePull {
			t.Errorf("a forgotten pause: %+v", err)
		}
	})
}

// SO4: who joins a pull ahead tells the time since it was asked for, which is never less than its own.
func TestJoinedPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{here: map[string]bool{}, took: 1200 * time.Millisecond}
		a := newAsker(manager(s, Options{}), "1")
		go a.m.Prefetch(t.Context(), Request{Pod: a.pod, Image: "a", Tell: func(string, string, string) {}})
		time.Sleep(400 * time.Millisecond)
		if err := a.ask(t.Context(), "a", corev1.PullIfNotPresent); err != nil || len(s.pulls) != 1 {
			t.Fatalf("%+v after %q", err, s.pulls)
		}
		if !a.heard(`Normal Pulled: Successfully pulled image "a" in 1.2s (1.2s including waiting). Image size: 5 bytes.`) {
			t.Errorf("told %q", a.told)
		}
	})
}

// SO4: a pull ahead that fails begins the pause, and is told of once.
func TestFailedPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{here: map[string]bool{}, fail: func(string) error { return errors.New("no route") }}
		a := newAsker(manager(s, Options{}), "1")
		for range 3 {
			a.m.Prefetch(t.Context(), Request{Pod: a.pod, Image: "a", Tell: func(kind, reason, message string) { a.told = append(a.told, kind+" "+reason+": "+message) }})
		}
		err := a.ask(t.Context(), "a", corev1.PullIfNotPresent)
		if err == nil || err.Reason != ImagePullBackOff || err.Retry != firstPause || len(s.pulls) != 1 {
			t.Errorf("%+v after %q", err, s.pulls)
		}
		want := []string{`Normal Pulling: Pulling image "a"`, `Warning Failed: Failed to pull image "a": no route`, `Normal BackOff: Back-off pulling image "a"`}
		if !slices.Equal(a.told, want) {
			t.Errorf("told %q", a.told)
		}
	})
}

// IM4: a request that comes while another one fails neither tries again nor lengthens the pause.
func TestFailureOfMany(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			s := &store{here: map[string]bool{}, fail: func(string) error { return errors.New("no route") }}
			a := newAsker(manager(s, Options{}), "1")
			for range 10 {
				go a.m.Prefetch(t.Context(), Request{Pod: a.pod, Image: "a", Tell: func(string, string, string) {}})
				go a.ask(t.Context(), "a", corev1.PullIfNotPresent)
			}
			synctest.Wait()
			err := a.ask(t.Context(), "a", corev1.PullIfNotPresent)
			if err == nil || err.Reason != ImagePullBackOff || err.Retry != firstPause || len(s.pulls) != 1 || len(a.m.flights) != 0 {
				t.Errorf("%+v after %d pulls, %d of which are left", err, len(s.pulls), len(a.m.flights))
			}
		})
	}
}

// IM3: a name that cannot be is not asked for, and not tried again.
func TestInvalidName(t *testing.T) {
	s := &store{here: map[string]bool{}}
	err := newAsker(manager(s, Options{}), "1").ask(t.Context(), "r.test/UPPER/Case:1", corev1.PullIfNotPresent)
	want := `Failed to apply default image tag "r.test/UPPER/Case:1": couldn't parse image name "r.test/UPPER/Case:1": invalid reference format: repository name (UPPER/Case) must be lowercase`
	if err == nil || err.Reason != InvalidImageName || err.Message != want || err.Retry != 0 {
		t.Errorf("%+v", err)
	}
}

// IM3, IM5: names that cannot be, servers that do not answer, and failures that are told apart.
func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		inspect, pull   error
		reason, message string
		retry           time.Duration
	}{
		{inspect: fmt.Errorf("bad name: %w", errdefs.ErrInvalidArgument), reason: InvalidImageName,
			message: `Failed to apply default image tag "a": bad name: invalid argument`},
		{inspect: errors.New("away"), reason: ImageInspectError, message: `Failed to inspect image "a": away`, retry: 10 * time.Second},
		{pull: errors.New("RegistryUnavailable: 503"), reason: RegistryUnavailable,
			message: "image pull failed for a because the registry is unavailable: 503", retry: shown},
		{pull: errors.New("SignatureValidationFailed: none"), reason: SignatureValidationFailed,
			message: "image pull failed for a because the signature validation failed: none", retry: shown},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			s := &store{here: map[string]bool{}, inspect: tt.inspect, fail: func(string) error { return tt.pull }}
			err := newAsker(manager(s, Options{}), "1").ask(t.Context(), "a", corev1.PullIfNotPresent)
			if err == nil || err.Reason != tt.reason || err.Message != tt.message || err.Retry != tt.retry {
				t.Errorf("%+v", err)
			}
		})
	}
}

// IM6: with the fallback an image that is here is used if the registry cannot be reached at all.
func TestFallback(t *testing.T) {
	unreached := &net.OpError{Op: "dial", Err: errors.New("no route")}
	for _, tt := range []struct {
		fallback bool
		err      error
		reason   string
	}{
		{true, unreached, ""}, {false, unreached, ErrImagePull}, {true, errdefs.ErrPermissionDenied, ErrImagePull},
		{true, &net.DNSError{Err: "no such host"}, ""},
	} {
		s := &store{here: map[string]bool{"a": true}, fail: func(string) error { return tt.err }}
		a := newAsker(manager(s, Options{Fallback: tt.fallback}), "1")
		reason := ""
		if err := a.ask(t.Context(), "a", corev1.PullAlways); err != nil {
			reason = err.Reason
		}
		if reason != tt.reason || tt.reason == "" && !a.heard("Normal Pulled: registry cannot be reached; using the image that is here (a)") {
			t.Errorf("fallback %v, %v: %q, told %q", tt.fallback, tt.err, reason, a.told)
		}
	}
}

// IM7: who waits for one image shares one pull; two images are pulled one after the other.
func TestParallel(t *testing.T) {
	for _, slots := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{here: map[string]bool{}, took: time.Second}
			m := manager(s, Options{Parallel: slots})
			began := time.Now()
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					if err := newAsker(m, fmt.Sprint(i)).ask(t.Context(), []string{"a", "b"}[i%2], corev1.PullAlways); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); len(s.pulls) != 2 || s.most != slots || took != time.Duration(3-slots)*time.Second {
				t.Errorf("%d slots: pulls %v, %d at once, took %v", slots, s.pulls, s.most, took)
			}
		})
	}
}

// A pull that nobody waits for any more ends; others are not disturbed.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{here: map[string]bool{}, took: time.Hour}
		m := manager(s, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := newAsker(m, "1").ask(ctx, "a", corev1.PullAlways); err == nil || err.Reason != "other" {
			t.Errorf("%+v", err)
		}
		synctest.Wait()
		if s.busy != 0 || len(m.flights) != 0 || len(m.pauses) != 0 {
			t.Errorf("%d pulls, %d flights, %d pauses are left", s.busy, len(m.flights), len(m.pauses))
		}
	})
}

func secret(name, config string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}}
}

// IM9: the credentials that match are tried, the longest first, then the server's own.
func TestSecrets(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("team:pass"))
	secrets := map[string]*corev1.Secret{
		"one": secret("one", `{"auths": {"registry.example": {"username": "all", "password": "x"}, "registry.example/team": {"auth": "`+auth+`"}, "elsewhere.example": {"auth": "`+auth+`"}}}`),
		"two": {ObjectMeta: metav1.ObjectMeta{Name: "two"}, Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"*.example": {"username": "glob", "password": "x"}}`)}},
		"bad": secret("bad", "secret text"),
	}
	s := &store{here: map[string]bool{}, fail: func(user string) error {
		if user != "" {
			return errdefs.ErrUnauthenticated
		}
		return nil
	}}
	m := manager(s, Options{Secret: func(_, name string) (*corev1.Secret, bool) { s, ok := secrets[name]; return s, ok }})
	a := newAsker(m, "1", "one", "two", "absent", "bad")
	if err := a.ask(t.Context(), "registry.example/team/app:1", corev1.PullAlways); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.pulls, ","); got != "registry.example/team/app:1 team,registry.example/team/app:1 all,registry.example/team/app:1 glob,registry.example/team/app:1 " {
		t.Errorf("pulls %q", got)
	}
	if !a.heard("Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (absent); attempting to pull the image may not succeed.") {
		t.Errorf("told %q", a.told)
	}
	for _, text := range a.told {
		if strings.Contains(text, "secret text") || strings.Contains(text, "pass") {
			t.Errorf("%q tells a secret", text)
		}
	}
}

// IM10: an image that came with one pod's secret is there for others, unless their policy asks.
func TestImageOfASecret(t *testing.T) {
	s := &store{here: map[string]bool{}, fail: func(user string) error {
		if user != "team" {
			return errdefs.ErrUnauthenticated
		}
		return nil
	}}
	found := secret("one", `{"auths": {"registry.example": {"username": "team", "password": "x"}}}`)
	m := manager(s, Options{Secret: func(_, name string) (*corev1.Secret, bool) { return found, name == "one" }})
	const image = "registry.example/team/app:1"
	if err := newAsker(m, "1", "one").ask(t.Context(), image, corev1.PullIfNotPresent); err != nil {
		t.Fatal(err)
	}
	other := newAsker(m, "2")
	if err := other.ask(t.Context(), image, corev1.PullIfNotPresent); err != nil || len(s.pulls) != 1 {
		t.Errorf("without the secret: %v, pulls %q", err, s.pulls)
	}
	if err := newAsker(m, "3").ask(t.Context(), image, corev1.PullAlways); err == nil || err.Reason != ErrImagePull {
		t.Errorf("Always without the secret: %v", err)
	}
}

// IM11: a pull is for the handler of its pod; two handlers share none.
func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{here: map[string]bool{}, took: time.Second}
		m := manager(s, Options{Parallel: 2})
		var all sync.WaitGroup
		for _, handler := range []string{"runc", "wasm", "wasm"} {
			a := newAsker(m, handler)
			a.handler = handler
			all.Go(func() {
				if err := a.ask(t.Context(), "a", corev1.PullAlways); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		slices.Sort(s.handlers)
		if !slices.Equal(s.handlers, []string{"runc", "wasm"}) {
			t.Errorf("pulls for %q", s.handlers)
		}
	})
}

// IM9: which entries of a docker configuration are for which image.
func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		registry, image string
		want            bool
	}{
		{"https://index.docker.io/v1/", "busybox", true},
		{"https://index.docker.io/v1/", "team/app:1", true},
		{"docker.io", "docker.io/library/busybox@sha256:00", true},
		{"docker.io/team", "team/app", true},
		{"docker.io/team", "other/app", false},
		{"registry.example", "registry.example/a/b:1", true},
		{"registry.example", "registry.example:5000/a", false},
		{"registry.example:5000", "registry.example:5000/a", true},
		{"http://registry.example/v2/team/", "registry.example/team/a", true},
		{"*.example", "registry.example/a", true},
		{"*.example", "a.registry.example/a", false},
		{"re*.example", "registry.example/a", true},
		{"localhost", "localhost/a", true},
		{"[::1]:5000", "[::1]:5000/a", true},
		{"[", "registry.example/a", false},
	} {
		ring := keyring{}
		s := secret("s", fmt.Sprintf(`{"auths": {%q: {"username": "u", "password": "p"}}}`, tt.registry))
		if err := ring.add(s); err != nil {
			t.Fatal(err)
		}
		if got := len(ring.match(tt.image)) == 1; got != tt.want {
			t.Errorf("%q for %q: %v", tt.registry, tt.image, got)
		}
	}
}
