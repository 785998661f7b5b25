package images

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxEntries bounds the registries of all Secrets of one pod.
const maxEntries = 1000

// entry is one registry of a docker configuration.
type entry struct {
	host, port, path string
	length           int // of what was written, for the order
	auth             *runtime.AuthConfig
}

// keyring are the credentials of a pod, the most special first.
type keyring []entry

// add takes in the credentials of a Secret.
//
// # Errors
//
// ErrInvalidArgument for a Secret of another type, and for one that cannot be read. The text has no
// value of it.
func (k *keyring) add(s *corev1.Secret) error {
	auths := map[string]dockerAuth{}
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]dockerAuth `json:"auths"`
		}
		if json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &config) != nil {
			return unreadable(s, corev1.DockerConfigJsonKey)
		}
		auths = config.Auths
	case corev1.SecretTypeDockercfg:
		if json.Unmarshal(s.Data[corev1.DockerConfigKey], &auths) != nil {
			return unreadable(s, corev1.DockerConfigKey)
		}
	default:
		return fmt.Errorf("secret %q has type %q, want %q or %q: %w", s.Name, s.Type, corev1.SecretTypeDockerConfigJson,
			corev1.SecretTypeDockercfg, errdefs.ErrInvalidArgument)
	}
	for registry, a := range auths {
		auth, err := a.config()
		if err != nil {
			return fmt.Errorf("secret %q: registry %q: %w", s.Name, registry, err)
		}
		if auth == nil {
			continue
		}
		if len(*k) == maxEntries {
			return fmt.Errorf("secret %q: the pod's secrets name more than %d registries: %w", s.Name, maxEntries, errdefs.ErrInvalidArgument)
		}
		host, port, rest := splitRegistry(registry)
		*k = append(*k, entry{host, port, rest, len(registry), auth})
	}
	slices.SortStableFunc(*k, func(a, b entry) int {
		if a.length != b.length {
			return b.length - a.length
		}
		return strings.Compare(b.host+b.path, a.host+a.path)
	})
	return nil
}

func unreadable(s *corev1.Secret, key string) error {
	return fmt.Errorf("secret %q: key %q is no docker configuration: %w", s.Name, key, errdefs.ErrInvalidArgument)
}

// match are the credentials for an image, in the order in which they are to be tried.
func (k keyring) match(image string) []*runtime.AuthConfig {
	host, port, rest := splitImage(image)
	var found []*runtime.AuthConfig
	for _, e := range k {
		if e.port == port && globs(e.host, host) && within(e.path, rest) {
			found = append(found, e.auth)
		}
	}
	return found
}

// dockerAuth is one registry's part of a docker configuration.
type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// config is nil if there are no credentials.
func (a dockerAuth) config() (*runtime.AuthConfig, error) {
	if a.Auth != "" {
		decoded, err := base64.StdEncoding.DecodeString(a.Auth)
		if err != nil {
			decoded, err = base64.RawStdEncoding.DecodeString(a.Auth)
		}
		user, password, found := strings.Cut(strings.TrimRight(string(decoded), "\x00"), ":")
		if err != nil || !found {
			return nil, fmt.Errorf("auth is not the base64 of name:password: %w", errdefs.ErrInvalidArgument)
		}
		a.Username, a.Password = user, password
	}
	if a.Username == "" && a.Password == "" && a.IdentityToken == "" && a.RegistryToken == "" {
		return nil, nil
	}
	return &runtime.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}, nil
}

// splitRegistry takes a key of a docker configuration apart: "https://index.docker.io/v1/",
// "registry.example:5000/team", "*.example".
func splitRegistry(key string) (host, port, rest string) {
	if u, err := url.Parse(key); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		key = u.Host + u.Path
	}
	authority, rest, _ := strings.Cut(key, "/")
	host, port = splitPort(authority)
	rest = strings.TrimSuffix(rest, "/")
	for _, version := range []string{"v1", "v2"} {
		if rest == version {
			rest = ""
		} else if after, found := strings.CutPrefix(rest, version+"/"); found {
			rest = after
		}
	}
	return canonical(host), port, rest
}

// splitImage takes an image's name apart; what names no registry is from Docker Hub.
func splitImage(image string) (host, port, rest string) {
	name, _, _ := strings.Cut(image, "@")
	first, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		first, rest = "docker.io", "library/"+name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		first, rest = "docker.io", name
	}
	if slash, colon := strings.LastIndexByte(rest, '/'), strings.LastIndexByte(rest, ':'); colon > slash {
		rest = rest[:colon]
	}
	host, port = splitPort(first)
	return canonical(host), port, rest
}

func splitPort(authority string) (host, port string) {
	if h, p, err := net.SplitHostPort(authority); err == nil {
		return h, p
	}
	return strings.Trim(authority, "[]"), ""
}

// canonical has one name for Docker Hub.
func canonical(host string) string {
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// globs matches host names part by part: a * stands within one part.
func globs(pattern, host string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], have[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// within says whether a path is prefix or is below it, as a kubelet compares them: by characters.
func within(prefix, rest string) bool { return strings.HasPrefix(rest, prefix) }
