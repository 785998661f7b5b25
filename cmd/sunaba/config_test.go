package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/cmd/sunaba/configfile"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim/stdio"

	"github.com/sunaba-project/sunaba/images/registry/hosts"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/version"
)

func TestDefaultFileIsTheDefault(t *testing.T) {
	got, err := parseConfig("default.toml", []byte(defaultTOML))
	if err != nil {
		t.Fatal(err)
	}
	if want := defaultConfig(); !reflect.DeepEqual(got, want) {
		t.Errorf("default.toml says\n%+v, the code\n%+v", got, want)
	}
}

// Who names no file has the standard one, if there is one; a file that is named exists.
func TestStandardFile(t *testing.T) {
	standard := filepath.Join(t.TempDir(), "config.toml")
	if c, err := readConfigOr("", standard); err != nil || !reflect.DeepEqual(c, defaultConfig()) {
		t.Errorf("without a file: %v, error %v", c, err)
	}
	if err := os.WriteFile(standard, []byte("[network]\nbridge = \"mine\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := readConfigOr("", standard); err != nil || c.Network.Bridge != "mine" {
		t.Errorf("bridge %q, error %v", c.Network.Bridge, err)
	}
	if _, err := readConfigOr(standard+".not", standard); err == nil {
		t.Error("a file that is named and not there is read")
	}
	if err := os.WriteFile(standard, []byte("bridge = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfigOr("", standard); err == nil || !strings.Contains(err.Error(), standard+":1") {
		t.Errorf("a standard file that is wrong: %v", err)
	}
}

// Every field stands in the documented default, with a comment of its own or that of its neighbours
// above.
func TestDefaultFileShowsEveryField(t *testing.T) {
	var check func(s reflect.Type, table string)
	check = func(s reflect.Type, table string) {
		for i := range s.NumField() {
			f := s.Field(i)
			name := f.Tag.Get("toml")
			want := "\n" + name + " = "
			switch f.Type.Kind() {
			case reflect.Pointer: // a table that need not be there
				want = "." + name + "]"
				check(f.Type.Elem(), "")
			case reflect.Struct:
				want = "\n[" + table + name + "]"
				check(f.Type, table+name+".")
			case reflect.Map:
				if f.Type.Elem().Kind() != reflect.Struct {
					want = "." + name + "]\n"
					break
				}
				want = "\n[" + name + "."
				check(f.Type.Elem(), "")
			}
			if !strings.Contains(defaultTOML, want) {
				t.Errorf("default.toml lacks %q", strings.TrimSpace(want))
			}
		}
	}
	check(reflect.TypeFor[config](), "")
}

func TestConfigErrorsNameTheirPlace(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"unknown field", "cgroup_driver = \"auto\"\n\n[network]\nbrige = \"x\"\n", `f.toml:4: unknown field "network.brige"; the nearest known one is "network.bridge"`},
		{"unknown table", "[nework]\nbridge = \"x\"\n", `f.toml:1: unknown field "nework"; the nearest known one is "network"`},
		{"unknown field of a handler", "[handlers.x]\ntype = \"oci\"\nbin = \"y\"\ndefault = true\n", `f.toml:3: unknown field "handlers.x.bin"; the nearest known one is "handlers.x.binary"`},
		{"wrong type", "\n[log]\nlevel = 3\n", "f.toml:3: "},
		{"no TOML", "a = \n", "f.toml:1: "},
		{"level", "[log]\nlevel = \"loud\"\n", `f.toml:2: log.level is "loud", not one of debug, info, warn, error`},
		{"driver", "cgroup_driver = \"x\"\n", `f.toml:1: cgroup_driver is "x"`},
		{"log rate", "[logs]\nrate_kib = -1\n", `f.toml:2: logs.rate_kib is -1`},
		{"log size", "[logs]\nmax_size_mib = 10000000\n", `f.toml:2: logs.max_size_mib is 10000000`},
		{"log rate of a handler", "[handlers.a]\ntype = \"wasm\"\ndefault = true\n[handlers.a.logs]\nrate_kib = -1\n", `f.toml:5: handlers.a.logs.rate_kib is -1`},
		{"bridge", "[network]\nbridge = \"a-name-that-is-too-long\"\n", `f.toml:2: network.bridge "a-name-that-is-too-long" is longer than 15`},
		{"bridge that is no name", "[network]\nbridge = \"a/b\"\n", `f.toml:1: network: bridge "a/b": not a name of a link`},
		{"subnet", "[network]\nsubnet_v4 = \"10.0.0.0/33\"\n", `f.toml:1: network: `},
		{"embedded network", "[network]\nembedded = \"no\"\n", `f.toml:2: network.embedded is "no", not one of auto, always, never`},
		{"mirror", "[images.mirrors]\n\"r.io\" = [\"m.lan\"]\n", `f.toml:2: images.mirrors."r.io": parse mirror "m.lan"`},
		{"verification", "[images]\npull_verification = \"x\"\n", `f.toml:2: images.pull_verification is "x", not one of never, when-private, always`},
		{"duration", "[images]\nstall_timeout = \"5\"\n", `f.toml:2: images.stall_timeout is "5"`},
		{"removed field", "[images]\nretries = 3\n", `f.toml:2: images.retries: removed: what may succeed later is retried 5 times`},
		{"removed field of a handler", "[handlers.a]\ntype = \"wasm\"\ndefault = true\n[handlers.a.logs]\nburst_kib = 1\n",
			`f.toml:5: handlers.a.logs.burst_kib: removed: `},
		{"removed and unknown fields", "shmi = \"x\"\n[wasm]\ncache = \"/c\"\n",
			"f.toml:1: unknown field \"shmi\"; the nearest known one is \"shim\"\nf.toml:3: wasm.cache: removed: "},
		{"field of another table", "level = \"debug\"\n", `f.toml:1: unknown field "level"; the nearest known one is "log.level"`},
		{"field of all handlers", "shim_scope = \"node\"\n", `the nearest known one is "handlers.NAME.shim_scope"`},
		{"no room for layers", "[images]\nmax_layer_mib = 0\n", `f.toml:2: images.max_layer_mib is 0, and 1 is the least`},
		{"removed number", "[images]\nparallel_layers = 6\n", `f.toml:2: images.parallel_layers: removed: one pull fetches 4 layers at a time`},
		{"mirrored host", "[images.mirrors]\nlibrary = [\"https://m.lan\"]\n", `f.toml:1: images.mirrors: "library" is not the host`},
		{"CDI folder", "[devices]\ncdi_spec_dirs = [\"cdi\"]\n", `f.toml:2: devices.cdi_spec_dirs: "cdi" is not`},
		{"annotation pattern", "[handlers.x]\ntype = \"oci\"\ndefault = true\npod_annotations = [\"[\"]\n", `handler "x": annotation pattern "["`},
		{"handler name", "[handlers.Foo_1]\ntype = \"oci\"\ndefault = true\n", `"Foo_1"`},
		{"handler type", "[handlers.x]\ntype = \"vm\"\ndefault = true\n", `"vm"`},
		{"shim scope", "[handlers.x]\ntype = \"oci\"\ndefault = true\nshim_scope = \"all\"\n", `shim scope "all" is not known (known: "pod", "node")`},
		{"several values", "[stream]\nport = 70000 # above\n\n[log]\nformat = \"x\"\n[metrics]\naddress = \"y\"\n[page]\naddress = \"node:80\"\n",
			"f.toml:5: log.format is \"x\", not one of text, json\nf.toml:2: stream.port 70000 is not between 0 and 65535\nf.toml:7: metrics.address \"y\" is not \"HOST:PORT\"\n" +
				"f.toml:9: page.address \"node:80\": host \"node\" is not an IP address or \"localhost\""},
		{"inline table", "pods = {max_pods = 0}\n", "f.toml:1: pods.max_pods is 0"},
		{"dotted key", "log.format = \"text\"\nlog.level = \"x\"\n", "f.toml:2: log.level is "},
		{"field that the file lacks", "[log]\n[stream]\ntls_key_file = \"/k\"\n", "f.toml:2: stream.tls_cert_file and stream.tls_key_file need one another"},
		{"no default", "[handlers.x]\ntype = \"oci\"\n", "default"},
		{"platform", "[handlers.x]\ntype = \"oci\"\ndefault = true\nplatforms = [\"a b\"]\n", `f.toml:1: handlers.x: parse platform "a b"`},
	} {
		_, err := parseConfig("f.toml", []byte(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

func TestConfigKeepsDefaultsThatAFileLeavesOut(t *testing.T) {
	c, err := parseConfig("f.toml", []byte("[network]\nbridge = \"br9\"\n[handlers.kraft]\ntype = \"wasm\"\ndefault = true\nplatforms = [\"wasip1/wasm\", \"host\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Network.Bridge != "br9" || c.Network.ConfDir != "/etc/cni/net.d" || c.Log.Level != "info" {
		t.Errorf("%+v", c)
	}
	table, err := c.handlers("/bin/crun")
	if err != nil {
		t.Fatal(err)
	}
	if all := table.All(); len(all) != 1 || all[0].Name != "kraft" || all[0].Type != runtimeclass.WASM ||
		all[0].Binary != "/bin/crun" || all[0].ShimScope != runtimeclass.ScopeNode || len(all[0].Platforms) != 2 {
		t.Errorf("%+v", table.All())
	}
}

// A removed key is none that a file may have, and its text is about a table that there is.
func TestRemovedKeysAreUnknown(t *testing.T) {
	known := configfile.Keys(config{})
	for key := range removedKeys {
		if slices.Contains(known, key) {
			t.Errorf("%s is removed and known", key)
		}
		if table := key[:strings.LastIndexByte(key, '.')]; !slices.Contains(known, table) {
			t.Errorf("%s is of a table that there is not", key)
		}
	}
}

func TestConfigReadsMirrors(t *testing.T) {
	c, err := parseConfig("f.toml", []byte("[images.mirrors]\n\"docker.io\" = [\"https://a\", \"http://b:5000/c\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Images.mirrors()
	want := map[string][]hosts.Mirror{"docker.io": {{Scheme: "https", Host: "a"}, {Scheme: "http", Host: "b:5000", Prefix: "c"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestConfigCommand(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := file("good", defaultTOML), file("bad", "[log]\nlevle = \"info\"\n")
	for _, c := range []struct {
		args     []string
		code     int
		out, err string
	}{
		{[]string{"config", "default"}, 0, defaultTOML, ""},
		{[]string{"config", "check", good}, 0, good + ": ok\n", ""},
		{[]string{"config", "check", bad}, 1, "", "sunaba: " + bad + ":2: unknown field \"log.levle\"; the nearest known one is \"log.level\"\n"},
		{[]string{"config", "check", good, bad}, 1, "", "sunaba: config check: want one file\n"},
		{[]string{"version"}, 0, "sunaba " + version.String() + "\n", ""},
		{[]string{"--version"}, 0, "sunaba version " + version.String() + "\n", ""},
	} {
		var out, errOut strings.Builder
		code := run(append([]string{"sunaba"}, c.args...), &out, &errOut)
		if code != c.code || out.String() != c.out || errOut.String() != c.err {
			t.Errorf("%v: %d, %q, %q", c.args, code, out.String(), errOut.String())
		}
	}
	var said strings.Builder
	if run([]string{"sunaba", "config", "check"}, &said, &said); !strings.Contains(said.String(), standardConfig) {
		t.Errorf("without a file it says %q", said.String())
	}
}

// The limits of a handler take the place of all those of logs.
func TestLogLimitsOfHandlers(t *testing.T) {
	c, err := parseConfig("f.toml", []byte(`
[logs]
rate_kib = 1
[handlers.a]
type = "oci"
default = true
[handlers.b]
type = "wasm"
[handlers.b.logs]
max_size_mib = 3
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]stdio.Limits{"": {Rate: 1 << 10}, "b": {Size: 3 << 20}}
	if got := c.logLimits(); !reflect.DeepEqual(got, want) {
		t.Errorf("limits are %v, want %v", got, want)
	}
}

// What serve refuses because of this machine, the check of a configuration refuses too, all at
// once.
func TestConfigCheckIsAsStrictAsServe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f.toml")
	text := "shim = \"/none/shim\"\n[overhead]\nclasses = [\"/none/classes\"]\n[stream]\naddress = \"192.0.2.1\"\ntls_cert_file = \"/none/c\"\ntls_key_file = \"/none/k\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	if code := run([]string{"sunaba", "config", "check", file}, &out, &errOut); code != 1 || out.Len() > 0 {
		t.Errorf("code %d, printed %q", code, out.String())
	}
	for _, want := range []string{
		file + ":1: shim: find shim", file + ":3: overhead.classes: ", "/none/classes",
		file + ":6: stream.tls_cert_file: open /none/c", file + ":5: stream.address: listen tcp 192.0.2.1",
	} {
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("%q does not tell of %q", errOut.String(), want)
		}
	}
}

// A path that is no socket is somebody's file.
func TestListenReplacesSocketsOnly(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "file"), filepath.Join(dir, "socket")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir} {
		if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "is no socket") {
			t.Errorf("listen on %s: %v", path, err)
		}
	}
	if data, err := os.ReadFile(file); string(data) != "precious" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	stale, err := unixsocket.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	stale.Close()
	l, err := listen(socket)
	if err != nil {
		t.Fatalf("a stale socket is not replaced: %v", err)
	}
	l.Close()
}
