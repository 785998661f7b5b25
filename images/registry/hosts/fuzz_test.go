package hosts

import (
	"net/url"
	"strings"
	"testing"
)

func FuzzHosts(f *testing.F) {
	for _, s := range []string{
		"", "server = \"https://r.io\"\n[host.\"https://m\"]\ncapabilities = [\"pull\"]\nca = [\"a\", \"b\"]\nclient = [[\"c\", \"k\"]]\n",
		"[host]\n\"a\" = {skip_verify = true}\n", "[host.a.header]\nx = [\"1\"]\n", "[[host]]\n", "host.\"a\".ca = 1\n", "a.b = 1\n[host.\"\"]",
		"[host.\"http://[::1]:1/v2/../x\"]\noverride_path = true\n", "[host.a]\n[host.a]\n", "\x00", "[host.\"a\" . 'b']\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts, err := parseHosts("/d/hosts.toml", data)
		if err != nil {
			return
		}
		for i, h := range hosts {
			if h.Host == "" && i < len(hosts)-1 {
				t.Errorf("host %d of %d is empty", i, len(hosts))
			}
			if h.Host == "" {
				continue
			}
			u := url.URL{Scheme: h.Scheme, Host: h.Host, Path: h.Path + "/x"}
			if h.Scheme != "http" && h.Scheme != "https" || !strings.HasPrefix(h.Path, "/") || strings.Contains(h.Path, "/../") {
				t.Errorf("%q", u.String())
			}
		}
	})
}
