package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// show prints what matters of a Config.
func show(h Config) string {
	out := h.Scheme + "://" + h.Host + h.Path
	if h.Pull {
		out += " pull"
	}
	if h.Resolve {
		out += " resolve"
	}
	if h.Primary {
		out += " primary"
	}
	if h.TLS.SkipVerify {
		out += " skip"
	}
	for _, f := range h.TLS.CA {
		out += " ca=" + f
	}
	for _, p := range h.TLS.Client {
		out += " client=" + p[0] + "+" + p[1]
	}
	for k, v := range h.Header {
		out += fmt.Sprintf(" %s=%s", k, strings.Join(v, ","))
	}
	if h.DialTimeout > 0 {
		out += " dial=" + h.DialTimeout.String()
	}
	return out
}

func TestParseHosts(t *testing.T) {
	tests := []struct {
		name, file string
		want       []string
		err        string
	}{
		{"empty", "", []string{":// pull resolve"}, ""},
		{"server", `server = "https://docker.io"`, []string{"https://docker.io/v2 pull resolve"}, ""},
		{"server without scheme", `server = "r.io:5000"`, []string{"https://r.io:5000/v2 pull resolve"}, ""},
		{"order is kept", "[host.\"https://z\"]\n[host.\"https://a\"]\n[host.\"http://m:1\"]\n",
			[]string{"https://z/v2 pull resolve", "https://a/v2 pull resolve", "http://m:1/v2 pull resolve", ":// pull resolve"}, ""},
		{"order with subtables", "[host.\"https://z\".header]\nx = \"1\"\n[host.\"https://a\"]\n[host.\"https://z\"]\nskip_verify = true\n",
			[]string{"https://z/v2 pull resolve skip X=1", "https://a/v2 pull resolve", ":// pull resolve"}, ""},
		{"order in one table", "[host]\n\"https://z\" = {}\n\"https://a\" = {capabilities = [\"pull\"]}\n",
			[]string{"https://z/v2 pull resolve", "https://a/v2 pull", ":// pull resolve"}, ""},
		{"capabilities", "[host.\"https://a\"]\ncapabilities = [\"pull\", \"push\"]\n[host.\"https://b\"]\ncapabilities = [\"Resolve\"]\n",
			[]string{"https://a/v2 pull", "https://b/v2 resolve", ":// pull resolve"}, ""},
		{"path", "[host.\"https://a/x\"]\n[host.\"https://b/y/\"]\noverride_path = true\n[host.\"https://c/v2/z\"]\n[host.\"https://d/p/v2\"]\n[host.\"https://e\"]\noverride_path = true\n",
			[]string{"https://a/x/v2 pull resolve", "https://b/y pull resolve", "https://c/v2/z/v2 pull resolve", "https://d/p/v2 pull resolve", "https://e/ pull resolve", ":// pull resolve"}, ""},
		{"files", "ca = \"ca.pem\"\n[host.\"https://a\"]\nca = [\"/x/1\", \"2\"]\nclient = \"both.pem\"\n[host.\"https://b\"]\nclient = [[\"c\", \"k\"], \"d\", [\"/e\", \"\"]]\n",
			[]string{"https://a/v2 pull resolve ca=/x/1 ca=/d/2 client=/d/both.pem+", "https://b/v2 pull resolve client=/d/c+/d/k client=/d/d+ client=/e+/d", ":// pull resolve ca=/d/ca.pem"}, ""},
		{"header and timeout", "[host.\"https://a\"]\ndial_timeout = \"3s\"\n[host.\"https://a\".header]\nx-one = [\"1\", \"2\"]\n",
			[]string{"https://a/v2 pull resolve X-One=1,2 dial=3s", ":// pull resolve"}, ""},
		{"no TOML", "server = \n", nil, "/d/hosts.toml: line 1: "},
		{"unknown field", "server = \"a\"\nskip_verfy = true\n", nil, `line 2: unknown field "skip_verfy"`},
		{"unknown capability", "[host.\"https://a\"]\ncapabilities = [\"puller\"]\n", nil, `host "https://a": unknown capability "puller"`},
		{"wrong type", "ca = 1\n", nil, "ca is neither a text nor a list"},
		{"wrong pair", "client = [[\"a\", \"b\", \"c\"]]\n", nil, "client holds something"},
		{"timeout", "dial_timeout = \"3\"\n", nil, `dial_timeout "3"`},
		{"scheme", "server = \"ftp://a\"\n", nil, "does not start with http"},
		{"credentials", "[host.\"https://u:s3cr3t@a\"]\n", nil, "credentials are not taken from a URL"},
		{"empty host", "[host.\"\"]\n", nil, `host "" is not the name of a host`},
	}
	for _, tt := range tests {
		got, err := parseHosts("/d/hosts.toml", []byte(tt.file))
		if tt.err != "" {
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%s: %v; want %q", tt.name, err, tt.err)
			}
			continue
		}
		var shown []string
		for _, h := range got {
			shown = append(shown, show(h))
		}
		if err != nil || strings.Join(shown, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s\n%v", tt.name, strings.Join(shown, "\n"), strings.Join(tt.want, "\n"), err)
		}
	}
}

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

func TestHostsFor(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"docker.io/hosts.toml":    "server = \"https://registry-1.docker.io\"\n[host.\"https://mirror.lan\"]\ncapabilities = [\"pull\"]\n",
		"named.io/hosts.toml":     "server = \"https://10.0.0.1\"\n",
		"own.io_5000_/hosts.toml": "skip_verify = true\n",
		"plain.io:80/hosts.toml":  "[host.\"http://m\"]\n",
		"127.0.0.1/ca.crt":        "x",
		"bad.io/hosts.toml":       "x",
		"_default/hosts.toml":     "server = \"https://all.lan\"\n",
		"file.io":                 "not a folder",
	})
	sources := Sources{Dir: dir, Insecure: []string{"plain.io"}, Mirrors: map[string][]Mirror{"docker.io": {{"http", "first", "p"}}}}
	for domain, want := range map[string][]string{
		"docker.io":    {"http://first/v2/p pull resolve", "https://mirror.lan/v2 pull", "https://registry-1.docker.io/v2 pull resolve primary"},
		"named.io":     {"https://10.0.0.1/v2 pull resolve primary"},
		"own.io:5000":  {"https://own.io:5000/v2 pull resolve primary skip"},
		"plain.io:80":  {"http://m/v2 pull resolve", "http://plain.io:80/v2 pull resolve primary"},
		"127.0.0.1":    {"https://127.0.0.1/v2 pull resolve primary ca=" + dir + "/127.0.0.1/ca.crt"},
		"other.io":     {"https://all.lan/v2 pull resolve"},
		"all.lan":      {"https://all.lan/v2 pull resolve primary"},
		"file.io":      {"https://all.lan/v2 pull resolve"},
		"localhost:50": {"https://all.lan/v2 pull resolve"},
	} {
		got, err := sources.For(domain)
		var shown []string
		for _, h := range got {
			shown = append(shown, show(h))
		}
		if err != nil || strings.Join(shown, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s\n%v", domain, strings.Join(shown, "\n"), strings.Join(want, "\n"), err)
		}
	}
	if _, err := sources.For("bad.io"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("bad.io: %v", err)
	}
	for _, root := range []string{"", filepath.Join(dir, "none")} {
		got, err := Sources{Dir: root}.For("localhost:50")
		if err != nil || len(got) != 1 || show(got[0]) != "http://localhost:50/v2 pull resolve primary" {
			t.Errorf("%q: %v, %v", root, got, err)
		}
	}
	err := Check(dir)
	if err == nil || !strings.Contains(err.Error(), "bad.io/hosts.toml") || !strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "docker.io") {
		t.Errorf("Check: %v", err)
	}
	if err := Check(filepath.Join(dir, "none")); err != nil {
		t.Errorf("Check of nothing: %v", err)
	}
}

func TestPlainHTTP(t *testing.T) {
	s := Sources{Insecure: []string{"insecure.io", "ported.io:5000"}}
	for domain, want := range map[string]bool{
		"localhost": true, "localhost:5000": true, "127.0.0.1": true, "127.9.9.9:1": true, "[::1]:5000": true,
		"insecure.io": true, "insecure.io:80": true, "ported.io:5000": true,
		"ported.io": false, "ported.io:5001": false, "docker.io": false, "localhost.io": false, "10.0.0.1:5000": false,
	} {
		if got := s.PlainHTTP(domain); got != want {
			t.Errorf("%s: %v", domain, got)
		}
	}
}
