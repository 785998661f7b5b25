package registry

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
)

var basic = &authn.Basic{Username: "u", Password: "s3cr3t"}

// htpasswd is a file with the user u, whose password is s3cr3t (bcrypt, as docker-registry wants
// it).
func htpasswd(t *testing.T) string {
	t.Helper()
	return write(t, "htpasswd", "u:$2y$05$abcdefghijklmnopqrstuu9Avu/WgbsK7g7xfCY1X3pdjsTgxqQLS\n")
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// logs collects what is written, from many goroutines.
type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// All six fields of a CRI AuthConfig, and the node's file, against docker-registry with passwords
// and with tokens.
func TestAuthorization(t *testing.T) {
	tokens := must[*TokenServer](t)(NewTokenServer())
	tokens.Users = map[string]string{"u": "s3cr3t"}
	tokens.IdentityTokens = map[string]string{"s3cr3t-identity": "u"}
	tokenServer := httptest.NewServer(tokens)
	t.Cleanup(tokenServer.Close)
	data := t.TempDir()
	open := distribution(t, DistributionOptions{Data: data})
	byPassword := distribution(t, DistributionOptions{Data: data, Htpasswd: htpasswd(t)})
	byToken := distribution(t, DistributionOptions{Data: data, Realm: tokenServer.URL + "/token", TokenCert: write(t, "cert.pem", string(tokens.CertPEM()))})
	img := image(t, 100, 1000)
	push(t, open.Host, "private/app:v1", img)
	push(t, open.Host, "public/app:v1", img)
	token := must[string](t)(tokens.token("u", "repository:private/app:pull"))
	node := func(host string) string {
		return write(t, "config.json", `{"auths":{"`+strings.Replace(host, "127", "*7", 1)+`/private":{"auth":"dTpzM2NyM3Q="}}}`)
	}
	b64 := base64.StdEncoding.EncodeToString
	tests := []struct {
		name  string
		d     *Distribution
		repo  string
		c     registry.Credentials
		node  string
		class func(error) bool
	}{
		{"password", byPassword, "private", registry.Credentials{Username: "u", Password: "s3cr3t"}, "", nil},
		{"auth", byPassword, "private", registry.Credentials{Auth: b64([]byte("u:s3cr3t\x00\x00"))}, "", nil},
		{"server address", byPassword, "private", registry.Credentials{Username: "u", Password: "s3cr3t", ServerAddress: "http://" + byPassword.Host + "/v2/"}, "", nil},
		{"another server address", byPassword, "private", registry.Credentials{Username: "u", Password: "s3cr3t", ServerAddress: byToken.Host}, "", errdefs.IsUnauthorized},
		{"wrong password", byPassword, "private", registry.Credentials{Username: "u", Password: "s3cr3t2"}, "", errdefs.IsUnauthorized},
		{"none", byPassword, "private", registry.Credentials{}, "", errdefs.IsUnauthorized},
		{"node's file", byPassword, "private", registry.Credentials{}, node(byPassword.Host), nil},
		{"token for a password", byToken, "private", registry.Credentials{Username: "u", Password: "s3cr3t"}, "", nil},
		{"token for an auth", byToken, "private", registry.Credentials{Auth: b64([]byte("u:s3cr3t"))}, "", nil},
		{"token for an identity token", byToken, "private", registry.Credentials{IdentityToken: "s3cr3t-identity"}, "", nil},
		{"registry token", byToken, "private", registry.Credentials{RegistryToken: token}, "", nil},
		{"token for the node's file", byToken, "private", registry.Credentials{}, node(byToken.Host), nil},
		{"token for nobody and private", byToken, "private", registry.Credentials{}, "", errdefs.IsUnauthorized},
		{"token for nobody and public", byToken, "public", registry.Credentials{}, "", nil},
		{"token for a wrong password", byToken, "private", registry.Credentials{Username: "u", Password: "s3cr3t2"}, "", errdefs.IsUnauthorized},
		{"token for a wrong identity token", byToken, "private", registry.Credentials{IdentityToken: "s3cr3t2"}, "", errdefs.IsUnauthorized},
		{"registry token for another repository", byToken, "public", registry.Credentials{RegistryToken: token}, "", errdefs.IsUnauthorized},
	}
	var logged logs
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := store(t, t.TempDir(), registry.Options{
				CredentialsFile: tt.node, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			ref := tt.d.Host + "/" + tt.repo + "/app:v1"
			got, err := s.Pull(t.Context(), images.PullRequest{Ref: ref, Auth: tt.c})
			if tt.class != nil {
				if err == nil || !tt.class(err) || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), token) {
					t.Errorf("Pull: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("Pull: %v", err)
			}
			intact(t, s, got, 100, 1000)
		})
	}
	for _, secret := range []string{"s3cr3t", token, b64([]byte("u:s3cr3t"))} {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("a secret was logged:\n%s", &logged)
		}
	}
	var how []string
	for _, g := range tokens.Grants() {
		how = append(how, strings.Fields(g)[0])
	}
	for _, want := range []string{"password", "refresh_token", "anonymous"} {
		if !strings.Contains(strings.Join(how, " "), want) {
			t.Errorf("no token was given by %s: %q", want, how)
		}
	}
}

// Tokens that run out while blobs come are replaced.
func TestTokensThatRunOut(t *testing.T) {
	tokens := must[*TokenServer](t)(NewTokenServer())
	tokens.Users = map[string]string{"u": "s3cr3t"}
	tokenServer := httptest.NewServer(tokens)
	t.Cleanup(tokenServer.Close)
	data := t.TempDir()
	open := distribution(t, DistributionOptions{Data: data})
	d := distribution(t, DistributionOptions{Data: data, Realm: tokenServer.URL, TokenCert: write(t, "cert.pem", string(tokens.CertPEM()))})
	sizes := []int{200_000, 200_000, 200_000}
	push(t, open.Host, "app:v1", image(t, sizes...))
	proxy, at := front(t, d.Host)
	proxy.Set(Fault{Path: "/blobs/", Do: Slow(40_000, 60*time.Millisecond)})
	tokens.Lifetime = time.Second
	s := store(t, t.TempDir(), registry.Options{MaxFetches: 1, RangeThreshold: 50_000, RangeSize: 50_000, RangeMemory: 50_000})
	got := must[images.Image](t)(s.Pull(t.Context(), images.PullRequest{Ref: at + "/app:v1", Auth: registry.Credentials{Username: "u", Password: "s3cr3t"}}))
	intact(t, s, got, sizes...)
}

func TestTLSWithPassword(t *testing.T) {
	// Go's own test certificate is for 127.0.0.1 and signs itself.
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	cert, key := serverPEM(t, srv)
	d := distribution(t, DistributionOptions{Htpasswd: htpasswd(t), Cert: write(t, "cert.pem", cert), Key: write(t, "key.pem", key)})
	push(t, d.Host, "app:v1", image(t, 100), remote.WithAuth(basic), remote.WithTransport(srv.Client().Transport))
	hosts := t.TempDir()
	dir := filepath.Join(hosts, strings.Replace(d.Host, ":", "_", 1)+"_")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	auth := registry.Credentials{Username: "u", Password: "s3cr3t"}
	s := store(t, t.TempDir(), registry.Options{HostsDir: hosts})
	for _, step := range []struct {
		name, file, content string
		ok                  bool
	}{
		{"nobody vouches for it", "hosts.toml", "server = \"https://" + d.Host + "\"\n", false},
		{"it is not verified", "hosts.toml", "server = \"https://" + d.Host + "\"\nskip_verify = true\n", true},
		{"an authority vouches for it", "hosts.toml", "server = \"https://" + d.Host + "\"\nca = \"ca.pem\"\n", true},
	} {
		for name, content := range map[string]string{step.file: step.content, "ca.pem": cert} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Pull(context.Background(), images.PullRequest{Ref: d.Host + "/app:v1", Auth: auth})
		if (err == nil) != step.ok || err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", step.name, err)
		}
		if err == nil {
			intact(t, s, got, 100)
		}
	}
}

// serverPEM returns a test server's certificate and key.
func serverPEM(t *testing.T, srv *httptest.Server) (cert, key string) {
	t.Helper()
	c := srv.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", c.Certificate[0]), encode("PRIVATE KEY", der)
}
