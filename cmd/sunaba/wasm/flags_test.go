package wasm

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestParse(t *testing.T) {
	t.Setenv("SUNABA_TEST_SET", "from here")
	t.Setenv("SUNABA_TEST_ODD", "\xff")
	odd := filepath.Join(t.TempDir(), "\xff")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	env := func(texts ...string) (any, error) { return ParseEnv(texts) }
	dirs := func(texts ...string) (any, error) { return ParseDirs(texts) }
	listen := func(texts ...string) (any, error) { return ParseListen(texts) }
	user := func(texts ...string) (any, error) { return ParseUser(texts[0]) }
	mount := func(to, how string) specs.Mount {
		return specs.Mount{Type: "bind", Source: "/tmp", Destination: to, Options: []string{"rbind", how}}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative := func(from, to, how string) specs.Mount {
		return specs.Mount{Type: "bind", Source: filepath.Join(here, from), Destination: to, Options: []string{"rbind", how}}
	}
	for _, c := range []struct {
		parse func(...string) (any, error)
		texts []string
		want  any // nil = invalid
	}{
		{env, []string{"A=", "B=c=d", "SUNABA_TEST_SET", "SUNABA_TEST_UNSET"}, []string{"A=", "B=c=d", "SUNABA_TEST_SET=from here"}},
		{env, []string{"=a"}, nil},
		{env, []string{""}, nil},
		{env, []string{"A=\xff"}, nil},
		{env, []string{"SUNABA_TEST_ODD"}, nil},
		{dirs, []string{"/tmp:/a", "/tmp:/b/../c/:ro", "/tmp/:/d:rw"}, []specs.Mount{mount("/a", "rw"), mount("/c", "ro"), mount("/d", "rw")}},
		{dirs, []string{"/tmp", "/tmp/../tmp:ro"}, []specs.Mount{mount("/tmp", "rw"), mount("/tmp", "ro")}},
		{dirs, []string{"/"}, nil},
		{dirs, []string{".", "testdata:ro", "./testdata/../testdata"}, []specs.Mount{relative(".", "/", "rw"), relative("testdata", "/testdata", "ro"), relative("testdata", "/testdata", "rw")}},
		{dirs, []string{".:/work"}, []specs.Mount{relative(".", "/work", "rw")}},
		{dirs, []string{".."}, nil},
		{dirs, []string{odd + ":/a"}, nil},
		{dirs, []string{"/tmp:/\xff"}, nil},
		{dirs, []string{".:/"}, nil},
		{dirs, []string{""}, nil},
		{dirs, []string{"/tmp:"}, nil},
		{dirs, []string{"/tmp:relative"}, nil},
		{dirs, []string{":/a"}, nil},
		{dirs, []string{"/tmp:/"}, nil},
		{dirs, []string{"/tmp:/.."}, nil},
		{listen, []string{"80", "127.0.0.1:81", "[::1]:82", ":83"}, []Listener{
			{Name: "port-80", Port: 80}, {Name: "port-81", Address: "127.0.0.1", Port: 81},
			{Name: "port-82", Address: "::1", Port: 82}, {Name: "port-83", Port: 83}}},
		{listen, []string{"0"}, nil},
		{listen, []string{"65536"}, nil},
		{listen, []string{"http"}, nil},
		{listen, []string{"::1"}, nil},
		{listen, []string{"localhost:80"}, nil},
		{listen, []string{"[fe80::1%lo]:80"}, nil},
		{user, []string{""}, (*User)(nil)},
		{user, []string{"7"}, &User{7, 7}},
		{user, []string{"7:8"}, &User{7, 8}},
		{user, []string{"root"}, nil},
		{user, []string{"7:"}, nil},
		{user, []string{"-1"}, nil},
	} {
		got, err := c.parse(c.texts...)
		switch {
		case c.want == nil && !errdefs.IsInvalidArgument(err):
			t.Errorf("%q: %v, %v", c.texts, got, err)
		case c.want != nil && (err != nil || !reflect.DeepEqual(got, c.want)):
			t.Errorf("%q: %+v, %v; want %+v", c.texts, got, err, c.want)
		}
	}
}
