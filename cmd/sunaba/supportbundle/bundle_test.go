package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// put writes a file below a folder.
func put(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// newNode is a node with empty folders.
func newNode(t *testing.T) Node {
	t.Helper()
	dir := t.TempDir()
	return Node{
		Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "none.sock"),
		ConfigFile: filepath.Join(dir, "config.toml"), ConfigKeys: words("log level images mirrors pinned pods manifests"),
		Credentials: filepath.Join(dir, "auth.json"), HostsDir: filepath.Join(dir, "certs.d"), PodLogs: filepath.Join(dir, "logs"),
		Manifests: []string{filepath.Join(dir, "manifests")}, LogFile: filepath.Join(dir, "server.txt"),
		Shim:  func() (string, error) { return "", errors.New("no shim") },
		Check: func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "0 findings\n"); return err },
	}
}

// read returns the files of a bundle by name, and its index.
func read(t *testing.T, n Node) (map[string]string, string) {
	t.Helper()
	var out bytes.Buffer
	index, err := n.write(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	return unpack(t, &out), index
}

func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, folder)] = string(data)
	}
}

// secretOf is a value of so many bytes for a place.
func secretOf(place string, length int) string {
	sum := sha256.Sum256([]byte(place + fmt.Sprint(length)))
	text := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])) + place + strings.Repeat("Qj", length)
	return "k" + text[1:length]
}

var places = []string{
	"config", "mirror", "env", "arg", "flag", "annotation", "label", "data", "string", "header", "auth", "url", "probe", "docker", "deleted", "unknown",
}

func TestNoSecretIsShown(t *testing.T) {
	for length := 1; length <= 64; length++ {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			n := newNode(t)
			s := map[string]string{}
			for _, p := range places {
				s[p] = secretOf(p, length)
			}
			encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
			plant(t, n, s, encoded)
			var log strings.Builder
			for _, p := range places {
				v := s[p]
				fmt.Fprintf(&log, "level=INFO msg=started value=%s text=%q twice=%q base64=%s basic=%s\n", v, v+" ", fmt.Sprintf("%q", v), encoded(v), encoded(v+":x"))
			}
			put(t, n.LogFile, log.String())
			put(t, filepath.Join(n.State, "shims/runc/shim.log"), log.String())
			files, index := read(t, n)
			files["stderr"] = index
			for name, content := range files {
				for p, v := range s {
					if length >= shortest && (strings.Contains(content, v) || strings.Contains(content, strings.TrimRight(encoded(v), "="))) {
						t.Errorf("%s has the secret %q of %s", name, v, p)
					}
				}
				if !strings.HasSuffix(name, ".json") {
					continue
				}
				for d := json.NewDecoder(strings.NewReader(content)); ; {
					token, err := d.Token()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					for p, v := range s {
						if token == v || token == encoded(v) {
							t.Errorf("%s shows the secret %q of %s", name, v, p)
						}
					}
				}
			}
			for name, want := range map[string]string{
				"records/state/containers/c.json":                            `"name": "app"`,
				"config/config.toml.json":                                    `"https://mirror.example/(removed)"`,
				"config/hosts/reg.example/hosts.toml.json":                   `"x-token"`,
				"manifests" + n.Manifests[0] + "/web.yaml.json":              `"secretName": "login"`,
				"records/pods/0a5b0c6c-9b1e-4c53-8a3e-000000000000/pod.json": `"exitCode": 3`,
				"logs/server.log":                                            "level=INFO msg=started value=",
				"logs/shims/runc/shim.log":                                   "level=INFO msg=started value=",
				"check.txt":                                                  "0 findings",
				"index.txt":                                                  "missing: server.txt: no server listens",
			} {
				if !strings.Contains(files[name], want) {
					t.Errorf("%s does not say %q:\n%s", name, want, files[name])
				}
			}
			if strings.Contains(files["index.txt"], "record-1.json") {
				t.Errorf("a file that waits for a record is missing:\n%s", files["index.txt"])
			}
		})
	}
}

// plant writes the files of a node with secrets in them.
func plant(t *testing.T, n Node, s map[string]string, encoded func(string) string) {
	t.Helper()
	put(t, n.ConfigFile, fmt.Sprintf("token = %q\n[log]\nlevel = \"debug\"\n[images.mirrors]\n\"docker.io\" = [\"https://u:%s@mirror.example/p\"]\n[pods.node_labels]\nlevel = %q\n",
		s["config"], s["mirror"], s["label"]))
	put(t, n.Credentials, fmt.Sprintf(`{"auths":{"reg.example":{"auth":%q}}}`, encoded("bob:"+s["auth"])))
	put(t, filepath.Join(n.HostsDir, "reg.example/hosts.toml"), fmt.Sprintf("server = \"https://reg.example\"\n[host.\"https://m.example\".header]\nx-token = [%q]\n", s["header"]))
	docker := encoded(fmt.Sprintf(`{"auths":{"r.example":{"username":"u","password":%q}}}`, s["docker"]))
	pod := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","annotations":{"name":%q,"kubectl.kubernetes.io/last-applied-configuration":"{\"x\":\"%s\"}"},
		"labels":{"kind":%q}},"spec":{"volumes":[{"name":"v","secret":{"secretName":"login"}}],"containers":[{"name":"app","image":"reg.example/app:1",
		"command":["sh","-c",%q,"--password=%s"],"env":[{"name":"PW","value":%q},{"name":"URL","value":"postgres://me:%s@db/x"}],
		"livenessProbe":{"httpGet":{"path":"/x?%s","port":80,"httpHeaders":[{"name":"X","value":%q}]}}}]}}`,
		s["annotation"], s["annotation"], s["label"], s["arg"], s["flag"], s["env"], s["url"], s["probe"], s["probe"])
	secret := fmt.Sprintf(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"login"},"data":{"name":%q,".dockerconfigjson":%q},"stringData":{"kind":%q}}`,
		encoded(s["data"]), docker, s["string"])
	put(t, filepath.Join(n.Manifests[0], "web.yaml"), pod+"\n---\n"+secret+"\n---\nkind: Odd\nspec: {token: "+s["unknown"]+"}\n")
	const uid = "0a5b0c6c-9b1e-4c53-8a3e-000000000000"
	put(t, filepath.Join(n.Root, "pods", uid, "pod.json"), `{"version":1,"old":"`+s["deleted"]+`"}`+"\n"+
		strings.ReplaceAll(`{"version":1,"pod":`+pod+`,"containers":{"app":{"last":{"exitCode":3,"reason":"Error","message":"`+s["unknown"]+`"}}}}`, "\n", " ")+"\n")
	put(t, filepath.Join(n.Root, "pods/applied/x"), `{"version":1,"object":{"kind":"Secret","value":`+secret+`}}`)
	put(t, filepath.Join(n.Root, "state/containers/c.json"), `{"version":1,"record":{"old":"`+s["deleted"]+`"}}`+"\n"+
		strings.ReplaceAll(fmt.Sprintf(`{"version":1,"record":{"id":"c","config":{"metadata":{"name":"app"},"command":[%q],"args":["--x=%s"],
		"envs":[{"key":"PW","value":%q}],"labels":{"id":%q}},"reason":"StartError","message":"exec: %s: not found"}}`, s["arg"], s["flag"], s["env"], s["label"], s["arg"]), "\n", " ")+"\n")
	put(t, filepath.Join(n.Root, "state/sandboxes/record-1.json"), "")
	put(t, filepath.Join(n.Root, "state/sandboxes/d.json.damaged"), "{\"version\":1,\"record\":{\"x\":\""+s["deleted"]+"\",")
}

func TestClean(t *testing.T) {
	s := newSecrets("")
	for _, v := range []string{"correct horse battery", "hunter2", "abcd", "abc", "12345", "info", "web", "/usr/bin/tool --key=Zm9vYmFyYmF6", "https://me:pa55w@db.example/x"} {
		s.add(v)
	}
	s.show("web")
	s.seal()
	for text, want := range map[string]string{
		`x="correct horse battery"`:           `x="(removed)"`,
		"prefixcorrect horse batteryrest":     "prefix(removed)rest",
		"hunter2 xhunter2 hunter23 (hunter2)": "(removed) xhunter2 hunter23 ((removed))",
		"said correct ho…":                    "said (removed)…",
		"said correct hor... and more":        "said (removed)... and more",
		"said hunt\nnext":                     "said (removed)\nnext",
		"hunt is no secret":                   "hunt is no secret",
		"abcd abc 12345 info web":             "(removed) abc 12345 info web",
		"key Zm9vYmFyYmF6.":                   "key (removed).",
		"GET https://a:b@host/path":           "GET https://(removed)host/path",
		"Authorization: Bearer abc.def":       "Authorization: Bearer (removed)",
		`password="xyz", next`:                `password="(removed)", next`,
		"pa55w":                               "(removed)",
		"file a: a damaged record: parse record \"a\": invalid x": "file a: a damaged record(removed)",
	} {
		if got, n := s.clean(text); got != want || (n > 0) != (text != want) {
			t.Errorf("%q\n got %q, %d\nwant %q", text, got, n, want)
		}
	}
}

// A key that is known is so only where it belongs.
func TestKeysOutOfPlace(t *testing.T) {
	for text, want := range map[string]string{
		`{"containers":{"command":["s3cret"],"args":"s3cret","app":{"image":"a/b:1","command":["s3cret"]}}}`:        `{"containers":{"app":{"command":["(removed)"],"image":"a/b:1"},"args":"(removed)","command":["(removed)"]}}`,
		`{"spec":{"data":{"name":"s3cret","spec":{"name":"s3cret"}},"name":"n"}}`:                                   `{"spec":{"data":{"name":"(removed)","spec":{"name":"(removed)"}},"name":"n"}}`,
		`{"host":"u:s3cret@h","path":"/a b","image":"u:s3cret@h/i","uid":7,"value":7,"x":7,"message":"m","y":true}`: `{"host":"(removed)","image":"(removed)","message":"m","path":"(removed)","uid":7,"value":"(removed)","x":"(removed)","y":true}`,
		`{"reason":"Error","message":"s3cret"}`:                                                                     `{"message":"(removed)","reason":"Error"}`,
		`{"reason":"Unknown","message":"s3cret"}`:                                                                   `{"message":"(removed)","reason":"Unknown"}`,
		`{"reason":"ProbeWarning","message":"s3cret"}`:                                                              `{"message":"(removed)","reason":"ProbeWarning"}`,
		`{"s3cret words":{"name":"x"},"path":"https://u:s3cret@h/s3cret?s3cret#s3cret","server":["s3cret"]}`:        `{"(removed)":{"name":"(removed)"},"path":"https://h/(removed)","server":["(removed)"]}`,
	} {
		docs, err := decodeJSON("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s := newSecrets("")
		s.seal()
		got, err := json.Marshal((&redactor{secrets: s, keys: recordKeys}).document(docs[0]))
		if err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", text, got, err, want)
		}
	}
}

func TestHostileFiles(t *testing.T) {
	n := newNode(t)
	outside := filepath.Join(t.TempDir(), "shadow")
	put(t, outside, `{"name":"outside"}`)
	records := filepath.Join(n.Root, "state/sandboxes")
	put(t, filepath.Join(records, "good.json"), `{"version":1,"record":{"id":"good"}}`)
	put(t, filepath.Join(records, "deep.json"), strings.Repeat(`{"spec":`, 900_000))
	put(t, filepath.Join(records, "level.json"), strings.Repeat(`{"spec":`, 9000)+`"x"`+strings.Repeat(`}`, 9000))
	put(t, filepath.Join(records, "broken.json"), `{"id":"s3cretOfBroken`)
	put(t, filepath.Join(records, "two.json"), `{"id":"a"}{"id":"b"}`)
	put(t, filepath.Join(records, "line\nmissing: forged.json"), `{"id":"x"}`)
	put(t, filepath.Join(records, "wide.json"), "["+strings.Repeat(`"x y",`, 1_000_000)+`"x"]`)
	put(t, filepath.Join(n.HostsDir, "a/hosts.toml"), "a = "+strings.Repeat("[", maxTOML-10))
	put(t, filepath.Join(n.Manifests[0], "bomb.yaml"), "a: &a [x,x,x,x,x,x,x,x,x]\n"+bomb())
	put(t, n.LogFile, "the broken record was s3cretOfBroken\n")
	put(t, filepath.Join(n.State, "shims/runc/shim.log"), strings.Repeat("0123456789 line\n", 10_000))
	for _, err := range []error{
		unix.Mkfifo(filepath.Join(records, "fifo.json"), 0o600),
		unix.Mknod(filepath.Join(records, "zero.json"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))),
		os.Mkdir(filepath.Join(records, "folder.json"), 0o700),
		os.Symlink(outside, filepath.Join(records, "link.json")),
		os.Symlink("link.json", filepath.Join(records, "loop.json")),
		unix.Mkfifo(filepath.Join(n.Root, "state/containers"), 0o600),
		unix.Mkfifo(filepath.Join(n.State, "sandboxes"), 0o600),
		os.MkdirAll(filepath.Join(n.State, "shims/wasm"), 0o700),
		os.Symlink(outside, filepath.Join(n.State, "shims/wasm/shim.log")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files, index := read(t, n)
	for name, content := range files {
		if strings.Contains(content, "outside") || strings.Contains(content, "s3cretOfBroken") {
			t.Errorf("%s has what it must not have:\n%.500s", name, content)
		}
	}
	for _, want := range []string{"fifo.json: is not a regular file", "zero.json: is not", "link.json: is not", "deep.json: cannot be decoded", "broken.json: cannot be decoded",
		"two.json: cannot be decoded", "hosts.toml.json: cannot be decoded", "wide.json: longer than"} {
		if !strings.Contains(index, want) {
			t.Errorf("the index does not say %q:\n%s", want, index)
		}
	}
	for _, want := range []string{"records/state/sandboxes/good.json", "records/state/sandboxes/level.json", "logs/server.log", "logs/shims/runc/shim.log"} {
		if files[want] == "" {
			t.Errorf("%s is missing:\n%s", want, index)
		}
	}
	if strings.Contains(index, "\nmissing: forged") {
		t.Errorf("a name makes a line:\n%s", index)
	}
	if size := len(files["logs/shims/runc/shim.log"]); size > logEnd || size < logEnd/2 {
		t.Errorf("%d bytes of a log", size)
	}
}

// bomb is a document in which lists have each other.
func bomb() string {
	var b strings.Builder
	for c := 'b'; c <= 'i'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8), c-1)
	}
	return b.String()
}

// Without knowing what is secret, no texts are shown.
func TestBlind(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *Node){
		"a broken configuration": func(t *testing.T, n *Node) { n.Unknown = "the configuration cannot be decoded" },
		"too long": func(t *testing.T, n *Node) {
			put(t, filepath.Join(n.Manifests[0], "long.yaml"), strings.Repeat("#", maxDocument+1))
		},
		"too many": func(t *testing.T, n *Node) {
			for i := range 3 {
				put(t, filepath.Join(n.Root, "state/sandboxes", fmt.Sprint(i)), fmt.Sprintf(`["%d%s"]`, i, strings.Repeat("x", maxDocument-100)))
			}
		},
		"no time": func(t *testing.T, n *Node) { n.within = time.Nanosecond },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			put(t, n.ConfigFile, "[log]\nlevel = \"info\"\n")
			put(t, n.LogFile, "some line\n")
			change(t, &n)
			files, index := read(t, n)
			if files["logs/server.log"] != "" || files["check.txt"] != "" || name != "no time" && files["versions.txt"] == "" || !strings.Contains(index, "missing: texts and logs: ") {
				t.Errorf("%v\n%s", files, index)
			}
		})
	}
}

func TestWhatHangsIsLeftOut(t *testing.T) {
	n := newNode(t)
	n.within = 2 * time.Second
	put(t, n.LogFile, "some line\n")
	n.Check = func(context.Context, io.Writer) error { select {} }
	files, index := read(t, n)
	if files["logs/server.log"] == "" || !strings.Contains(index, "missing: check.txt: took longer than 2s") {
		t.Error(index)
	}
}

func TestFile(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "bundle.tar.gz")
	names := func() (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	// Nothing is left of one that is interrupted, wherever it is.
	for _, hang := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		n.Check = func(context.Context, io.Writer) error {
			cancel()
			if hang {
				select {}
			}
			return nil
		}
		if _, err := n.writeFile(ctx, file, false); !errors.Is(err, context.Canceled) || len(names()) > 0 {
			t.Errorf("interrupted: %v, %v", err, names())
		}
	}
	n.Check = func(context.Context, io.Writer) error { return nil }
	if _, err := n.writeFile(t.Context(), file, false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	put(t, file, "mine")
	if _, err := n.writeFile(t.Context(), file, false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("an existing file: %v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "mine" {
		t.Errorf("an existing file was changed: %q, %v", data, err)
	}
	if _, err := n.writeFile(t.Context(), file, true); err != nil {
		t.Error(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if files := unpack(t, f); files["index.txt"] == "" || files["versions.txt"] == "" {
		t.Errorf("files: %v", files)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{filepath.Join(dir, "fifo"), dir, filepath.Join(dir, "none/x"), "/proc/x"} {
		if _, err := n.writeFile(t.Context(), bad, true); err == nil {
			t.Errorf("%s was written", bad)
		}
	}
	if all := names(); len(all) != 2 {
		t.Errorf("left: %v", all)
	}
}

// A reader that does not read does not keep it from ending.
func TestBlockedOutput(t *testing.T) {
	n := newNode(t)
	r, w := io.Pipe()
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := n.stream(ctx, w); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
