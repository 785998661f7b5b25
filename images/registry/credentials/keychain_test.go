package credentials

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The names are those of Kubernetes' documents ("Interpretation of config.json"), with what must
// not match beside them.
func TestMatchesKey(t *testing.T) {
	for key, names := range map[string]struct{ yes, no []string }{
		"*my-registry.io/images": {
			yes: []string{
				"my-registry.io/images", "my-registry.io/images/my-image", "my-registry.io/images/another-image",
				"sub.my-registry.io/images/my-image", "a.sub.my-registry.io/images/my-image",
			},
			no: []string{"evil.io/my-registry.io/images", "my-registry.io:5000/images/x", "my-registry.io/imagesx", "my-registry.io/other", "my-registry.io.evil/images/x", "my-registry.com/images/x"},
		},
		"*.my-registry.io": {
			yes: []string{"sub.my-registry.io/x", "a.sub.my-registry.io/x"},
			no:  []string{"my-registry.io/x", "submy-registry.io/x"},
		},
		"prefix.*.io":       {yes: []string{"prefix.my-registry.io/x"}, no: []string{"prefix.io/x", "prefix.a.b.io/x", "xprefix.a.io/x"}},
		"*-good.io":         {yes: []string{"prefix-good.io/x"}, no: []string{"good.io/x"}},
		"abc?.io":           {yes: []string{"abcd.io/x"}, no: []string{"abc.io/x", "abcde.io/x", "abc..io/x"}},
		"r[0-9].io":         {yes: []string{"r1.io/x"}, no: []string{"ra.io/x"}},
		`r\[1].io`:          {no: []string{"r1.io/x"}},
		"*.io:8443":         {yes: []string{"a.io:8443/x"}, no: []string{"a.io/x", "a.io:443/x"}},
		"https://r.io/v1/":  {yes: []string{"r.io/x"}, no: []string{"s.io/x"}},
		"http://r.io/v2":    {yes: []string{"r.io/x"}},
		"r.io/team":         {yes: []string{"r.io/team/app", "r.io/team"}, no: []string{"r.io/teams/app", "r.io/x/team"}},
		"r.io":              {yes: []string{"r.io/x/y/z"}, no: []string{"sub.r.io/x"}},
		"index.docker.io":   {yes: []string{"docker.io/library/busybox"}},
		"[::1]:5000":        {yes: []string{"[::1]:5000/x"}, no: []string{"[::1]:5001/x"}},
		"[":                 {no: []string{"r.io/x"}},
		"*":                 {yes: []string{"r.io/x", "a.b.c/x"}, no: []string{"r.io:5000/x"}},
		"":                  {no: []string{"r.io/x"}},
		"registry*.lan/a/b": {yes: []string{"registry1.lan/a/b/c"}, no: []string{"registry.x.lan/a/b/c", "registry1.lan/a/bc"}},
	} {
		for _, n := range names.yes {
			if !matchesKey(key, n) {
				t.Errorf("%q does not match %q", key, n)
			}
		}
		for _, n := range names.no {
			if matchesKey(key, n) {
				t.Errorf("%q matches %q", key, n)
			}
		}
	}
}

// helperScript is a credential helper that knows three servers.
const helperScript = `#!/bin/sh
[ "$1" = get ] || exit 1
read -r server
case "$server" in
helped.io) echo '{"ServerURL":"helped.io","Username":"hu","Secret":"hs"}' ;;
token.io) echo '{"ServerURL":"token.io","Username":"<token>","Secret":"identity"}' ;;
https://index.docker.io/v1/) echo '{"Username":"hub","Secret":"hubs"}' ;;
broken.io) echo "secret text s3cr3t"; exit 1 ;;
*) echo "credentials not found in native keychain"; exit 1 ;;
esac
`

func TestKeychain(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-test"), []byte(helperScript), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	const auths = `"auths": {
		"r.io": {"auth": "` + "%s" + `"},
		"r.io/team": {"username": "team", "password": "tp"},
		"*.io": {"username": "wild", "password": "wp"},
		"id.io": {"auth": "` + "%s" + `", "identitytoken": "idt"},
		"reg.io": {"registrytoken": "rt"},
		"bad.io": {"auth": "!"},
		"helped.io": {"username": "file", "password": "fp"}
	}`
	file := fmt.Sprintf("{"+auths+`, "credHelpers": {"helped.io": "test", "token.io": "test", "broken.io": "test", "gone.io": "no-such-helper", "path.io": "../../bin/sh"}}`,
		b64("u:p"), b64("00000000-0000-0000-0000-000000000000:"))
	tests := []struct {
		name, file, repository string
		want                   []string
	}{
		{"closest first", file, "r.io/team/app", []string{"team/tp", "u/p", "wild/wp"}},
		{"host", file, "r.io/other", []string{"u/p", "wild/wp"}},
		{"none", file, "r.lan/x", nil},
		{"identity token", file, "id.io/x", []string{"/idt", "wild/wp"}},
		{"registry token", file, "reg.io/x", []string{"bearer rt", "wild/wp"}},
		{"one that cannot be read", file, "bad.io/x", []string{"wild/wp"}},
		{"helper before file", file, "helped.io/x", []string{"hu/hs", "file/fp", "wild/wp"}},
		{"helper with a token", file, "token.io/x", []string{"/identity", "wild/wp"}},
		{"helper that fails", file, "broken.io/x", []string{"wild/wp"}},
		{"helper that is not there", file, "gone.io/x", []string{"wild/wp"}},
		{"helper that is no name", file, "path.io/x", []string{"wild/wp"}},
		{"store for all", `{"credsStore":"test"}`, "helped.io/x", []string{"hu/hs"}},
		{"store for Docker Hub", `{"credsStore":"test"}`, "docker.io/library/x", []string{"hub/hubs"}},
		{"store that has none", `{"credsStore":"test"}`, "r.io/x", nil},
		{"not JSON", `{"auths": s3cr3t`, "r.io/x", nil},
		{"another form", `{"auths": ["s3cr3t"]}`, "r.io/x", nil},
		{"empty", `{}`, "r.io/x", nil},
	}
	for _, tt := range tests {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		var logged strings.Builder
		var got []string
		for _, l := range Open(path, slog.New(slog.NewTextHandler(&logged, nil))).Logins(t.Context(), tt.repository) {
			if l.Bearer != "" {
				got = append(got, "bearer "+l.Bearer)
			} else {
				got = append(got, l.User+"/"+l.Secret)
			}
		}
		if strings.Join(got, " ") != strings.Join(tt.want, " ") {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if strings.Contains(logged.String(), "s3cr3t") {
			t.Errorf("%s: logged %s", tt.name, &logged)
		}
		if fails := strings.Contains(tt.name, "that fails") || strings.Contains(tt.name, "not JSON"); fails && logged.Len() == 0 {
			t.Errorf("%s: nothing was logged", tt.name)
		}
	}
	gone := Open(filepath.Join(bin, "none.json"), slog.New(slog.DiscardHandler))
	if got := gone.Logins(t.Context(), "r.io/x"); len(got) != 0 {
		t.Errorf("a file that is not there: %v", got)
	}
}

func TestHelperIsEnded(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-slow"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := runHelper(ctx, "slow")("get").Output(); err == nil {
		t.Error("a helper that is ended gives credentials")
	}
}
