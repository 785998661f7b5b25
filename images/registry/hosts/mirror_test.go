package hosts

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestParseMirror(t *testing.T) {
	for endpoint, want := range map[string]Mirror{
		"http://127.0.0.1:5000":            {"http", "127.0.0.1:5000", ""},
		"https://mirror.lan/":              {"https", "mirror.lan", ""},
		"https://mirror.lan:8443/a/cache/": {"https", "mirror.lan:8443", "a/cache"},
	} {
		if got, err := ParseMirror(endpoint); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", endpoint, got, err, want)
		}
	}
	for _, endpoint := range []string{"", "mirror.lan", "mirror.lan:5000", "ftp://m", "https://", "https://u:s3cr3t@m", "https://m/?q", "https://m/#f", "https://u:s3cr3t@%zz"} {
		if _, err := ParseMirror(endpoint); !errdefs.IsInvalidArgument(err) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

func TestCheckMirrored(t *testing.T) {
	for _, host := range []string{"docker.io", "localhost", "localhost:5000", "r.io:443", "127.0.0.1:5000"} {
		if err := CheckMirrored(host); err != nil {
			t.Error(err)
		}
	}
	for _, host := range []string{"", "library", "r.io/x", "https://r.io", "*"} {
		if err := CheckMirrored(host); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", host, err)
		}
	}
}
