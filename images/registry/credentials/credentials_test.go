package credentials

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestLogin(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := []struct {
		name   string
		c      Credentials
		domain string
		want   Login
		bad    bool
	}{
		{"none", Credentials{}, "r.io", Login{}, false},
		{"password", Credentials{Username: "u", Password: "p"}, "r.io", Login{User: "u", Secret: "p"}, false},
		{"auth", Credentials{Auth: b64("u:p:q")}, "r.io", Login{User: "u", Secret: "p:q", Encoded: b64("u:p:q")}, false},
		{"auth padded with NULs", Credentials{Auth: b64("u:p\x00\x00")}, "r.io", Login{User: "u", Secret: "p", Encoded: b64("u:p\x00\x00")}, false},
		{"auth without padding", Credentials{Auth: strings.TrimRight(b64("u:pp"), "=")}, "r.io", Login{User: "u", Secret: "pp", Encoded: "dTpwcA"}, false},
		{"auth not base64", Credentials{Auth: "!secret!"}, "r.io", Login{}, true},
		{"auth without a colon", Credentials{Auth: b64("secret")}, "r.io", Login{}, true},
		{"identity token", Credentials{IdentityToken: "i"}, "r.io", Login{Secret: "i"}, false},
		{"registry token", Credentials{RegistryToken: "r"}, "r.io", Login{Bearer: "r"}, false},
		{"registry token first", Credentials{RegistryToken: "r", Username: "u", Password: "p", IdentityToken: "i", Auth: b64("a:b")}, "r.io", Login{Bearer: "r"}, false},
		{"password before identity token", Credentials{Username: "u", Password: "p", IdentityToken: "i", Auth: b64("a:b")}, "r.io", Login{User: "u", Secret: "p"}, false},
		{"identity token before auth", Credentials{IdentityToken: "i", Auth: b64("a:b")}, "r.io", Login{Secret: "i"}, false},
		{"for this server", Credentials{Username: "u", ServerAddress: "r.io"}, "r.io", Login{User: "u"}, false},
		{"for this server, with scheme and path", Credentials{Username: "u", ServerAddress: "https://r.io/v1/"}, "r.io", Login{User: "u"}, false},
		{"for this server and port", Credentials{Username: "u", ServerAddress: "http://r.io:5000"}, "r.io:5000", Login{User: "u"}, false},
		{"for another port", Credentials{Username: "u", ServerAddress: "r.io:5001"}, "r.io:5000", Login{}, false},
		{"for another server", Credentials{Username: "u", ServerAddress: "s.io", RegistryToken: "r"}, "r.io", Login{}, false},
		{"for a server that has the name in it", Credentials{Username: "u", ServerAddress: "r.io.evil"}, "r.io", Login{}, false},
		{"Docker Hub's other name", Credentials{Username: "u", ServerAddress: "https://index.docker.io/v1/"}, "docker.io", Login{User: "u"}, false},
	}
	for _, tt := range tests {
		got, err := tt.c.Login(tt.domain)
		if tt.bad {
			if !errdefs.IsInvalidArgument(err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestCredentialsHide(t *testing.T) {
	c := Credentials{Username: "u", Password: "s3cr3t", Auth: "s3cr3t", IdentityToken: "s3cr3t", RegistryToken: "s3cr3t"}
	var buf strings.Builder
	slog.New(slog.NewJSONHandler(&buf, nil)).Info("pull", "auth", c)
	fmt.Fprintf(&buf, "%v %+v %#v %s %v", c, struct{ Auth Credentials }{c}, c, c, &c)
	if strings.Contains(buf.String(), "s3cr3t") {
		t.Error(buf.String())
	}
}
