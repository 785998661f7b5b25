package credentials

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	helper "github.com/docker/docker-credential-helpers/client"
	helpers "github.com/docker/docker-credential-helpers/credentials"

	"github.com/sunaba-project/sunaba/host/regular"
)

// maxFile bounds the node's file, in bytes.
const maxFile = 4 << 20

// helperTimeout bounds a credential helper's run.
const helperTimeout = 30 * time.Second

// dockerConfig is what matters of Docker's config.json.
type dockerConfig struct {
	Auths       map[string]dockerAuth `json:"auths"`
	CredHelpers map[string]string     `json:"credHelpers"`
	CredsStore  string                `json:"credsStore"`
}

type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// Keychain is the node's credentials as its file has them now.
type Keychain struct {
	config dockerConfig
	logger *slog.Logger
}

// Open reads the node's file, a Docker configuration; "" means none. One that cannot be read is as
// if it were empty, and logged: it must not keep public images away.
func Open(file string, logger *slog.Logger) *Keychain {
	k := &Keychain{logger: logger}
	if file == "" {
		return k
	}
	data, err := regular.ReadConfigured(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return k
	}
	if err == nil {
		k.config, err = parseDockerConfig(data)
	}
	if err != nil {
		logger.Warn("failed to read the node's registry credentials", "file", file, "error", err)
	}
	return k
}

func parseDockerConfig(data []byte) (dockerConfig, error) {
	var d dockerConfig
	if err := json.Unmarshal(data, &d); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok { // no other text: it could quote a secret
			return d, fmt.Errorf("not JSON at byte %d", syntax.Offset)
		}
		return d, errors.New("not in the form of Docker's config.json")
	}
	return d, nil
}

// Logins returns the credentials for a repository ("host/path"), the closest first: those of the
// helper that is configured for its host, or for all, then those of the file.
func (k *Keychain) Logins(ctx context.Context, repository string) []Login {
	host, _, _ := strings.Cut(repository, "/")
	var found []Credentials
	if c, ok := k.fromHelper(ctx, host); ok {
		found = append(found, c)
	}
	for _, key := range k.matching(repository) {
		a := k.config.Auths[key]
		found = append(found, Credentials{
			Username: a.Username, Password: a.Password, Auth: a.Auth,
			IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
		})
	}
	var out []Login
	for _, c := range found {
		l, err := c.Login(host)
		if err != nil {
			k.logger.Warn("failed to use the node's credentials for a registry", "host", host, "error", err)
			continue
		}
		if l != (Login{}) && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// matching returns the keys of "auths" that a repository is under: longer paths
// first, then hosts without wildcards, then the longer key.
func (k *Keychain) matching(repository string) []string {
	var keys []string
	for key := range k.config.Auths {
		if matchesKey(key, repository) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		wild := func(s string) int {
			if strings.ContainsAny(s, "*?[") {
				return 1
			}
			return 0
		}
		return cmp.Or(
			strings.Count(trimKey(b), "/")-strings.Count(trimKey(a), "/"),
			wild(a)-wild(b), len(b)-len(a), strings.Compare(a, b))
	})
	return keys
}

// trimKey takes scheme and the paths of Docker's old API off a key.
func trimKey(key string) string {
	if _, rest, ok := strings.Cut(key, "://"); ok {
		key = rest
	}
	key = strings.TrimRight(key, "/")
	host, p, _ := strings.Cut(key, "/")
	if p == "v1" || p == "v2" {
		return host
	}
	return key
}

// matchesKey reports whether a key of "auths" covers a repository, by the rules of Kubernetes'
// documents: "*" stands for any run of characters of one label of the host's name, at the start
// for one over several labels too; "?", "[…]" and "\c" are those of path.Match; a port must be the
// same, and the path is a prefix by whole elements.
func matchesKey(key, repository string) bool {
	keyHost, keyPath, _ := strings.Cut(trimKey(key), "/")
	host, repo, _ := strings.Cut(repository, "/")
	keyHost, keyPort := splitPort(CanonicalServer(keyHost))
	host, port := splitPort(CanonicalServer(host))
	if keyPort != port || !matchesHost(keyHost, host) {
		return false
	}
	return keyPath == "" || repo == keyPath || strings.HasPrefix(repo, keyPath+"/")
}

func splitPort(host string) (name, port string) {
	if i := strings.LastIndex(host, ":"); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i], host[i+1:]
	}
	return host, ""
}

// matchesHost matches label by label: with slashes for dots, path.Match's "*"
// ends where a label does.
func matchesHost(pattern, host string) bool {
	pattern, host = strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(host, ".", "/")
	if pattern == host {
		return true
	}
	rest, spans := strings.CutPrefix(pattern, "*")
	if !spans {
		ok, err := path.Match(pattern, host)
		return ok && err == nil
	}
	for i := range len(host) + 1 {
		if ok, err := path.Match(rest, host[i:]); ok && err == nil {
			return true
		}
	}
	return false
}

// fromHelper asks the credential helper for a host, if one is configured.
func (k *Keychain) fromHelper(ctx context.Context, host string) (Credentials, bool) {
	name, server := k.config.CredsStore, host
	if CanonicalServer(host) == "docker.io" {
		server = "https://index.docker.io/v1/"
	}
	for key, n := range k.config.CredHelpers {
		if sameServer(key, host) {
			name, server = n, key
		}
	}
	if name == "" {
		return Credentials{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	got, err := helper.Get(runHelper(ctx, name), server)
	switch {
	case helpers.IsErrCredentialsNotFound(err):
		return Credentials{}, false
	case err != nil:
		k.logger.Warn("credential helper failed", "helper", name, "host", host, "error", err)
		return Credentials{}, false
	case got.Username == "<token>":
		return Credentials{IdentityToken: got.Secret}, true
	}
	return Credentials{Username: got.Username, Password: got.Secret}, true
}

// helperRun is one run of a credential helper.
type helperRun struct {
	cmd  *exec.Cmd
	err  error
	name string
}

// runHelper runs docker-credential-NAME, which is looked for in PATH.
func runHelper(ctx context.Context, name string) helper.ProgramFunc {
	return func(args ...string) helper.Program {
		if name == "" || strings.ContainsAny(name, `/\`) {
			return &helperRun{err: errors.New("the name of the helper is not the end of a file name"), name: name}
		}
		cmd := exec.CommandContext(ctx, "docker-credential-"+name, args...)
		cmd.WaitDelay = time.Second
		return &helperRun{cmd: cmd, name: name}
	}
}

// Input sets what the helper reads.
func (h *helperRun) Input(in io.Reader) {
	if h.err == nil {
		h.cmd.Stdin = in
	}
}

// Output runs the helper. What it writes is not repeated in an error: only that
// there are no credentials is told by its text.
func (h *helperRun) Output() ([]byte, error) {
	if h.err != nil {
		return nil, h.err
	}
	out, err := h.cmd.Output()
	if err == nil {
		return out, nil
	}
	if text := string(bytes.TrimSpace(out)); helpers.IsErrCredentialsNotFoundMessage(text) {
		return out, err
	}
	return nil, fmt.Errorf("run docker-credential-%s: %w", h.name, err)
}
