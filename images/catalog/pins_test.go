package catalog

import "testing"

func TestMatchName(t *testing.T) {
	for pattern, names := range map[string][2]string{
		"docker.io/library/*": {"docker.io/library/a:1", "docker.io/me/a:1"},
		"*:stable":            {"x.org/a/b:stable", "x.org/a/b:stable2"},
		"x.org/a@sha256:*":    {"x.org/a@sha256:00", "x.org/a:1"},
		"x.org/[ab]:v?":       {"x.org/a:v1", "x.org/c:v1"},
	} {
		if !matchName(pattern, names[0]) || matchName(pattern, names[1]) {
			t.Errorf("%s does not tell %q", pattern, names)
		}
	}
}
