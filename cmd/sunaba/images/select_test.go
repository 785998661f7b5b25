package images

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/images"
)

func some() []images.Image {
	sum := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	platform := ocispec.Platform{OS: "linux", Architecture: "amd64"}
	return []images.Image{
		{ID: sum("1"), RepoTags: []string{"docker.io/library/b:1"}, RepoDigests: []string{"docker.io/library/b@" + sum("a")}, Platform: platform, Created: time.Unix(10, 0)},
		{ID: sum("2"), RepoTags: []string{"docker.io/library/b:1", "example.org/x/a:2"}, RepoDigests: []string{"docker.io/library/b@" + sum("a")}, Platform: platform, Created: time.Unix(20, 0),
			Config: ocispec.ImageConfig{Labels: map[string]string{"tier": "front", "empty": ""}}},
		{ID: sum("3"), RepoDigests: []string{"docker.io/library/b@" + sum("c")}, Platform: platform},
	}
}

func TestFilters(t *testing.T) {
	for _, tt := range []struct {
		filters []string
		want    string // the first digits of ids
	}{
		{nil, "123"},
		{[]string{"dangling=true"}, "3"},
		{[]string{"dangling=false"}, "12"},
		{[]string{"dangling=false", "dangling=true"}, "123"},
		{[]string{"label=tier"}, "2"},
		{[]string{"label=tier=front"}, "2"},
		{[]string{"label=tier=back"}, ""},
		{[]string{"label=tier", "label=empty"}, "2"},
		{[]string{"label=tier", "label=none"}, ""},
		{[]string{"reference=b"}, "123"},
		{[]string{"reference=b:*"}, "12"},
		{[]string{"reference=example.org/*/*"}, "2"},
		{[]string{"reference=*"}, "123"},
		{[]string{"reference=example.org/*"}, ""}, // "*" is no slash, as with Docker
		{[]string{"reference=docker.io/library/b:1"}, "12"},
		{[]string{"reference=a", "reference=example.org/x/a:2"}, "2"},
		{[]string{"reference=b", "dangling=true"}, "3"},
	} {
		f, err := ParseFilters(tt.filters)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, img := range f.Of(some()) {
			got += img.ID[len("sha256:"):][:1]
		}
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.filters, got, tt.want)
		}
	}
	for filter, want := range map[string]string{
		"size=1":       "is unknown; filters are reference=PATTERN, dangling=true|false, label=NAME[=VALUE]",
		"dangling=1":   "neither true nor false",
		"dangling":     "has no value",
		"reference=":   "has no value",
		"reference=[a": "malformed",
	} {
		if _, err := ParseFilters([]string{filter}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", filter, err)
		}
	}
}

func TestImagesAreSortedAndEncoded(t *testing.T) {
	for format, want := range map[string][]string{
		output.Table: {"NAME ", "docker.io/library/b:1 222", "docker.io/library/b:1 111", "docker.io/library/b@sha256:ccc", "example.org/x/a:2 222"},
		output.Wide:  {"CREATED MANIFEST", "1970-01-01 00:00:20"},
		output.Name:  {"docker.io/library/b:1\ndocker.io/library/b@", "\nexample.org/x/a:2\n"},
		output.JSON:  {`"id": "sha256:222`, `"id": "sha256:111`, `"id": "sha256:333`},
		output.YAML:  {"id: sha256:222", "tags:\n  - docker.io/library/b:1", "id: sha256:111"},
	} {
		var out bytes.Buffer
		if err := Images(&out, some(), format); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if format == output.Table || format == output.Wide {
			text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), " ")
		}
		at := 0
		for _, part := range want {
			next := strings.Index(text[at:], part)
			if next < 0 {
				t.Fatalf("%s: %q is not in, or not after the one before:\n%s", format, part, text)
			}
			at += next
		}
	}
	var ids bytes.Buffer
	if err := IDs(&ids, some()); err != nil || strings.Count(ids.String(), "\n") != 3 {
		t.Errorf("ids %q, %v", ids.String(), err)
	}
}

func TestWithVariants(t *testing.T) {
	all := some()
	for _, tt := range []struct {
		ref  string
		came []images.Image
		want int
	}{
		{"b:1", all[:1], 2},
		{"", all[:1], 2},
		{"", all[2:], 1},
		{"example.org/x/a:2", all[1:2], 1},
		{"b@sha256:" + strings.Repeat("a", 64), all[:1], 2},
		{"", nil, 0},
	} {
		got := withVariants(all, tt.ref, tt.came)
		if len(got) != tt.want || len(tt.came) > 0 && !slices.ContainsFunc(got, func(i images.Image) bool { return i.ID == tt.came[0].ID }) {
			t.Errorf("%q: %d images, want %d", tt.ref, len(got), tt.want)
		}
	}
}

// An archive that gives an image several names brings it several times; it is listed once under
// each.
func TestSortedListsANameOnce(t *testing.T) {
	var names []string
	for _, r := range Sorted([]images.Image{{ID: "1", RepoTags: []string{"a:1"}}, {ID: "1", RepoTags: []string{"a:1", "b:1"}}, {ID: "2", RepoTags: []string{"a:1"}}}) {
		names = append(names, r.Name+"="+r.ID)
	}
	if want := []string{"a:1=1", "a:1=2", "b:1=1"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}
