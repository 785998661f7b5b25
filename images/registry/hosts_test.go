package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// writeTree writes files below a new directory.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// authority is a certificate authority of the test's own.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	return a
}

func (a *authority) issue(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// leaf issues a certificate for 127.0.0.1 and for clients, and returns it and its key in PEM.
func (a *authority) leaf() (cert, key string) {
	a.t.Helper()
	c, k := a.issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return toPEM("CERTIFICATE", c.Raw), toPEM("EC PRIVATE KEY", der)
}

func (a *authority) pem() string { return toPEM("CERTIFICATE", a.cert.Raw) }

func toPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// serveTLS starts a server with a certificate of the authority; clients, when set, must come with
// one of it.
func serveTLS(t *testing.T, a *authority, clients bool, h http.HandlerFunc) string {
	t.Helper()
	return serveProtocol(t, a, clients, 1, h)
}

// serveProtocol is serveTLS with HTTP/1 or HTTP/2.
func serveProtocol(t *testing.T, a *authority, clients bool, protocol int, h http.HandlerFunc) string {
	t.Helper()
	certPEM, keyPEM := a.leaf()
	cert, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = nil
	srv.EnableHTTP2 = protocol == 2
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	if clients {
		pool := x509.NewCertPool()
		pool.AddCert(a.cert)
		srv.TLS.ClientAuth, srv.TLS.ClientCAs = tls.RequireAndVerifyClientCert, pool
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "https://")
}

func TestTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	open := serveTLS(t, a, false, serveManifest)
	plain, _ := serve(t, serveManifest)
	closed := serveTLS(t, a, true, serveManifest)
	elsewhere := serveTLS(t, a, false, serveManifest)
	foreign := serveTLS(t, other, false, serveManifest)
	redirects := serveTLS(t, a, true, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
	})
	astray := serveTLS(t, a, false, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+foreign+r.URL.Path, http.StatusTemporaryRedirect)
	})
	cert, key := a.leaf()
	tests := []struct {
		name, host, hosts string
		files             map[string]string
		ok                bool
		text              string
	}{
		{"unknown authority", open, "", nil, false, "certificate signed by unknown authority (images.hosts_dir has the authorities of registries)"},
		{"no TLS", plain, "", nil, false, "http: server gave HTTP response to HTTPS client (images.insecure_registries names registries without TLS)"},
		{"ca", open, "ca = \"ca.pem\"", map[string]string{"ca.pem": a.pem()}, true, ""},
		{"another ca", open, "ca = \"ca.pem\"", map[string]string{"ca.pem": other.pem()}, false, "unknown authority"},
		{"Docker's layout", open, "-", map[string]string{"x.crt": a.pem()}, true, ""},
		{"Docker's layout beside an empty hosts.toml", open, "-", map[string]string{"x.crt": a.pem(), "hosts.toml": ""}, true, ""},
		{"skip_verify", open, "skip_verify = true", nil, true, ""},
		{"no client certificate", closed, "skip_verify = true", nil, false, "certificate required"},
		{"client certificate", closed, "ca = \"ca.pem\"\nclient = [[\"c.pem\", \"k.pem\"]]", map[string]string{"ca.pem": a.pem(), "c.pem": cert, "k.pem": key}, true, ""},
		{"client certificate and key in one file", closed, "skip_verify = true\nclient = \"both.pem\"", map[string]string{"both.pem": cert + key}, true, ""},
		{"client certificate in Docker's layout", closed, "-", map[string]string{"x.crt": a.pem(), "c.cert": cert, "c.key": key}, true, ""},
		{"redirected, with the same authority", redirects, "ca = \"ca.pem\"\nclient = \"both.pem\"", map[string]string{"ca.pem": a.pem(), "both.pem": cert + key}, true, ""},
		{"skip_verify ends where the server redirects to", astray, "skip_verify = true", nil, false, "unknown authority"},
		{"a file that is not there", open, "ca = \"none.pem\"", nil, false, "none.pem"},
		{"a file that holds something else", open, "ca = \"ca.pem\"", map[string]string{"ca.pem": "x"}, false, "no certificate in PEM form"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := strings.ReplaceAll(tt.host, ":", "_") + "_"
			files := map[string]string{}
			for n, c := range tt.files {
				files[dir+"/"+n] = c
			}
			if tt.hosts != "-" {
				files[dir+"/hosts.toml"] = "server = \"https://" + tt.host + "\"\n" + tt.hosts + "\n"
			}
			client := New(fast(Options{HostsDir: writeTree(t, files)}))
			defer client.Close()
			r, err := client.Repository(t.Context(), tt.host+"/app:v1", Credentials{})
			if err == nil {
				_, err = r.Resolve(t.Context())
			}
			if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v; want %q", err, tt.text)
			}
			if err != nil && strings.HasPrefix(err.Error(), UnavailablePrefix) {
				t.Errorf("%v: a certificate is no sign that the registry is not there", err)
			}
		})
	}
}

// What is configured for a host reaches it, and nobody that it redirects to; what changes holds for
// the next pull, while connections are shared as long as nothing does.
func TestHostSettingsReachTheirHost(t *testing.T) {
	var seen []string
	note := func(r *http.Request) {
		seen = append(seen, fmt.Sprintf("%s secret=%q ns=%q auth=%q", r.URL.Path, r.Header.Get("X-Secret"), r.URL.Query().Get("ns"), r.Header.Get("Authorization")))
	}
	elsewhere, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		note(r)
		serveManifest(w, r)
	})
	mirror, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		note(r)
		http.Redirect(w, r, "http://"+elsewhere+"/signed?X-Signature=s", http.StatusFound)
	})
	file := "[host.\"http://" + mirror + "/api\"]\noverride_path = true\n[host.\"http://" + mirror + "/api\".header]\nx-secret = \"h\"\n"
	dir := writeTree(t, map[string]string{"r.io/hosts.toml": file})
	client := New(fast(Options{HostsDir: dir}))
	defer client.Close()
	pull := func() error {
		r, err := client.Repository(t.Context(), "r.io/app:v1", Credentials{Username: "u", Password: "p"})
		if err == nil {
			_, err = r.Resolve(t.Context())
		}
		return err
	}
	if err := pull(); err != nil {
		t.Fatal(err)
	}
	want := []string{`/api/app/manifests/v1 secret="h" ns="r.io" auth=""`, `/signed secret="" ns="" auth=""`}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("seen\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
	if err := os.WriteFile(filepath.Join(dir, "r.io", "hosts.toml"), []byte("serber = 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pull(); err == nil || !strings.Contains(err.Error(), `unknown field "serber"`) {
		t.Errorf("after the file changed: %v", err)
	}
}

// What is configured for a server reaches its token server too where that is the same one.
func TestHeadersReachTheTokenServer(t *testing.T) {
	for name, tt := range map[string]struct{ apart, ok bool }{"the same server": {false, true}, "another one": {true, false}} {
		tokens := func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Gate") != "open" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			fmt.Fprint(w, `{"token":"good","access_token":"good"}`)
		}
		other, _ := serve(t, tokens)
		host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			realm := r.Host
			if tt.apart {
				realm = other
			}
			switch {
			case r.URL.Path == "/token":
				tokens(w, r)
			case r.Header.Get("X-Gate") != "open":
				w.WriteHeader(http.StatusForbidden)
			default:
				guarded(func() string { return "good" }, fixed("http://"+realm+"/token"), "")(w, r)
			}
		})
		dir := writeTree(t, map[string]string{
			strings.ReplaceAll(host, ":", "_") + "_/hosts.toml": "server = \"http://" + host + "\"\n[header]\nx-gate = \"open\"\n",
		})
		client := New(fast(Options{HostsDir: dir}))
		defer client.Close()
		r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{Username: "u", Password: "p"})
		if err == nil {
			_, err = r.Resolve(t.Context())
		}
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMirrorThatOnlyGives(t *testing.T) {
	mirror, atMirror := serve(t, serveManifest)
	registry, atRegistry := serve(t, serveManifest)
	dir := writeTree(t, map[string]string{
		strings.ReplaceAll(registry, ":", "_") + "_/hosts.toml": "[host.\"http://" + mirror + "\"]\ncapabilities = [\"pull\"]\n",
	})
	client := New(fast(Options{HostsDir: dir}))
	defer client.Close()
	r, err := client.Repository(t.Context(), registry+"/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Resolve(t.Context())
	if err != nil || atMirror.Load() != 0 || atRegistry.Load() != 1 {
		t.Errorf("a tag was asked for at the mirror %d times: %v", atMirror.Load(), err)
	}
	b, err := r.Fetch(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if atMirror.Load() != 1 || atRegistry.Load() != 1 {
		t.Errorf("content was asked for at the registry")
	}
}

// A proxy that is busy is asked again, as a registry is; one that refuses is not.
func TestProxyThatIsBusy(t *testing.T) {
	for status, want := range map[int]int32{http.StatusProxyAuthRequired: 3, http.StatusForbidden: 3} {
		var asked atomic.Int32
		proxy, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect || r.Host != "registry.test:443" {
				t.Errorf("the proxy was asked for %s %s", r.Method, r.Host)
			}
			if asked.Add(1) < want {
				w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusBadGateway}[asked.Load()%2])
				return
			}
			w.WriteHeader(status)
		})
		t.Setenv("HTTPS_PROXY", "http://"+proxy)
		_, err := resolve(t, "registry.test/app:v1", Credentials{})
		if err == nil || !strings.Contains(err.Error(), http.StatusText(status)) || asked.Load() != want {
			t.Errorf("a proxy that is busy and then answers %d was asked %d times: %v", status, asked.Load(), err)
		}
	}
	proxy, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) })
	t.Setenv("HTTPS_PROXY", "http://"+proxy)
	_, err := resolve(t, "registry.test/app:v1", Credentials{})
	if err == nil || !strings.Contains(err.Error(), "RegistryUnavailable") || !strings.Contains(err.Error(), "the proxy "+proxy+" answered 504") || requests.Load() < 2 {
		t.Errorf("a proxy that stays busy, asked %d times: %v", requests.Load(), err)
	}
}

func TestProxyFromEnvironment(t *testing.T) {
	var asked []string
	proxy, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		serveManifest(w, r)
	})
	t.Setenv("HTTP_PROXY", "http://"+proxy)
	t.Setenv("NO_PROXY", "direct.test")
	client := New(fast(Options{Insecure: []string{"registry.test", "direct.test"}}))
	defer client.Close()
	for ref, through := range map[string]bool{"registry.test/app:v1": true, "direct.test/app:v1": false} {
		asked = nil
		r, err := client.Repository(t.Context(), ref, Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Resolve(t.Context())
		if got := len(asked) == 1 && asked[0] == "HEAD http://registry.test/v2/app/manifests/v1"; got != through || through && err != nil {
			t.Errorf("%s: the proxy was asked for %q: %v", ref, asked, err)
		}
	}
}
