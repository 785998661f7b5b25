package registry

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// The node's credentials serve pulls that bring none, in their order, and mirrors have their own.
// What comes with a pull goes before, and reaches nobody but the registry.
func TestNodeCredentials(t *testing.T) {
	s := &tokenServer{basic: true}
	host, _ := serve(t, s.handler) // u:p
	write := func(entries string) string {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(`{"auths":{`+entries+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right, wrong := `{"username":"u","password":"p"}`, `{"username":"u","password":"x"}`
	tests := []struct {
		name, entries string
		c             Credentials
		ok            bool
		access        Access
	}{
		{"node's", `"` + host + `":` + right, Credentials{}, true, ByNode},
		{"the second of the node's", `"` + host + `/app":` + wrong + `,"` + host + `":` + right, Credentials{}, true, ByNode},
		{"all of the node's are wrong", `"` + host + `/app":` + wrong, Credentials{}, false, Open},
		{"pull's before the node's", `"` + host + `":` + wrong, Credentials{Username: "u", Password: "p"}, true, ByPull},
		{"pull's are wrong, the node's are not used", `"` + host + `":` + right, Credentials{Username: "u", Password: "x"}, false, Open},
		{"pull's are for another server", `"` + host + `":` + right, Credentials{Username: "u", Password: "x", ServerAddress: "other.io"}, true, ByNode},
		{"none", "", Credentials{}, false, Open},
	}
	for _, tt := range tests {
		client := New(fast(Options{CredentialsFile: write(tt.entries)}))
		r, err := client.Repository(t.Context(), host+"/app:v1", tt.c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Resolve(t.Context())
		if (err == nil) != tt.ok || err == nil && r.Access() != tt.access {
			t.Errorf("%s: %v, access %d", tt.name, err, r.Access())
		}
		client.Close()
	}

	m := &tokenServer{basic: true}
	mirror, _ := serve(t, m.handler)
	o := fast(Options{CredentialsFile: write(`"` + mirror + `":` + right), Mirrors: map[string][]hosts.Mirror{host: {{Scheme: "http", Host: mirror}}}})
	client := New(o)
	defer client.Close()
	r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{Username: "u", Password: "other"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Resolve(t.Context())
	if err != nil || r.Served()[d.Digest] != mirror || r.Access() != ByNode {
		t.Errorf("from a mirror with the node's credentials: %v, served by %v", err, r.Served())
	}
	for _, seen := range m.seen {
		if strings.Contains(seen, base64.StdEncoding.EncodeToString([]byte("u:other"))) {
			t.Errorf("the mirror saw the pull's credentials: %s", seen)
		}
	}
}

func TestFingerprint(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	of := func(ref string, creds Credentials, salt string) string {
		r, err := c.Repository(t.Context(), ref, creds)
		if err != nil {
			t.Fatal(err)
		}
		return r.Fingerprint([]byte(salt))
	}
	base := of("r.io/a:1", Credentials{Username: "u", Password: "p"}, "s")
	if base == "" || strings.Contains(base, "p") && len(base) < 64 {
		t.Errorf("fingerprint %q", base)
	}
	same := of("r.io/b:2", Credentials{Auth: base64.StdEncoding.EncodeToString([]byte("u:p"))}, "s")
	if same != base {
		t.Error("the same credentials in another form, for another repository, differ")
	}
	for name, other := range map[string]string{
		"salt":     of("r.io/a:1", Credentials{Username: "u", Password: "p"}, "t"),
		"registry": of("s.io/a:1", Credentials{Username: "u", Password: "p"}, "s"),
		"password": of("r.io/a:1", Credentials{Username: "u", Password: "q"}, "s"),
		"cut":      of("r.io/a:1", Credentials{Username: "up", Password: ""}, "s"),
		"token":    of("r.io/a:1", Credentials{RegistryToken: "up"}, "s"),
	} {
		if other == base {
			t.Errorf("another %s makes no difference", name)
		}
	}
	if got := of("r.io/a:1", Credentials{}, "s"); got != "" {
		t.Errorf("without credentials: %q", got)
	}
}
