package credentials

import (
	"log/slog"
	"testing"
)

func FuzzDockerConfig(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"auths":{"r.io":{"auth":"dTpw"}}}`, `{"auths":{"*.io/a":{"username":"u","password":"p"},"[":{}}}`,
		`{"auths":{"r.io":{"auth":"!"}},"credHelpers":{"x":"../y"}}`, `{"auths":[]}`, `{"auths":{"https://r.io/v1/":{"identitytoken":"t"}}}`, "",
	} {
		f.Add([]byte(s), "r.io/a/b")
	}
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		d, err := parseDockerConfig(data)
		if err != nil {
			return
		}
		d.CredsStore, d.CredHelpers = "", nil // programs are not run for what a fuzzer says
		k := &Keychain{config: d, logger: slog.New(slog.DiscardHandler)}
		if n := len(k.Logins(t.Context(), repository)); n > len(d.Auths) {
			t.Errorf("%d logins from %d entries", n, len(d.Auths))
		}
	})
}
