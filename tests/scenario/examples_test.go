package scenario

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Pods with an end, by the command that stands in their manifests.
func TestExampleJobs(t *testing.T) {
	m := start(t)
	for _, c := range []struct {
		manifest string
		images   []string
		code     int
		says     []string
	}{
		{"batch-pod.yaml", []string{"batch"}, 7, []string{"primes: 9592 primes below 100000\n", "primes: line 5\n"}},
		{"tally/pod.yaml", []string{"tally", "busybox"}, 0, []string{"      3 the\n      2 is\n      2 sand\n     14 words, 9 of them different, in 2 files\n"}},
		{"filter/pod.yaml", []string{"filter", "busybox"}, 0, []string{"[address] GET /?to=[mail] 200\n", "filter: 2 masked\n"}},
		{"spool/pod.yaml", []string{"spool", "busybox"}, 0, []string{"spool: one: 1b02ac95878a55ab\n", "spool: two: bc03dc1b5b3ca056\n"}},
		{"quantiles/pod.yaml", []string{"quantiles", "busybox"}, 0, []string{"count 200\nmean 100.500\np50 100\np90 180\np99 198\n"}},
	} {
		t.Run(filepath.Dir(filepath.Join("examples", c.manifest)), func(t *testing.T) {
			world.Need(t, c.images...)
			file := filepath.Join(t.TempDir(), "pod.yaml")
			if err := os.WriteFile(file, world.Manifest(t, c.manifest), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(world.Bin, "sunaba"), "run", "--socket", m.Socket,
				"--runtimeclass", "../../examples/runtimeclasses.yaml", file)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
			// With several containers each line begins with the name of its own.
			said := regexp.MustCompile(`(?m)^\[[a-z]+\] `).ReplaceAllString(stdout.String()+stderr.String(), "")
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in %q", want, said)
				}
			}
		})
	}
}

// On a terminal a pull has a bar for each layer.
func TestRunShowsBars(t *testing.T) {
	m := start(t)
	file := filepath.Join(t.TempDir(), "pod.yaml")
	text := "{apiVersion: v1, kind: Pod, metadata: {name: bars}, spec: {restartPolicy: Never, runtimeClassName: wasm, containers: [" +
		"{name: c, image: " + world.Busybox + ", command: [echo, it has, run]}, {name: g, image: " + world.Guest + ", args: [cat, /etc/greeting]}]}}"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	term := openTerminal(t, exec.CommandContext(t.Context(), filepath.Join(world.Bin, "sunaba"), "run", "--socket", m.Socket, file), 120, 40)
	if err := term.ends(); err != nil {
		t.Fatalf("%v: %q", err, term.text())
	}
	said := term.text()
	for _, want := range []string{`[0-9a-f]{12} +\[=+>?\] done`, `compile .*done`, `it has run`, `hello from the image`} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
}

func TestExampleGreeter(t *testing.T) {
	world.Need(t, "greeter")
	k := start(t).runManifest("greeter-pod.yaml")
	if got, want := k.Get("http://"+k.ip()+":8080/"), "Hello from wasip1/wasm on greeter\n"; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	k.end("greeter").expectEnd(0, "Completed")
}

// The filter's input comes through attach, as that of `kubectl run -i` does.
func TestExampleFilter(t *testing.T) {
	world.Need(t, "filter")
	m := start(t)
	ref := world.Registry.Host + "/sunaba/filter:v1"
	m.pull(ref)
	p := m.run("wasm")
	config := containerConfig(ref)
	config.Stdin, config.StdinOnce = true, true
	c := p.begin(config)
	out, errs, err := m.talk("from 10.0.0.1, a@b.cd.\nnot 300.1.1.1, x@y\nlast 1.2.3.4", "attach", "-i", c.id)
	if want := "from [address], [mail].\nnot 300.1.1.1, x@y\nlast [address]"; err != nil || out != want {
		t.Errorf("%v, %q, %q; want %q", err, out, errs, want)
	}
	c.expectEnd(0, "Completed")

	files := t.TempDir()
	if err := errors.Join(os.Chmod(files, 0o777), os.WriteFile(filepath.Join(files, "in"), []byte("1.2.3.4\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	config = containerConfig(ref, "-o", "/files/out", "/files/in", "files/in")
	config.Mounts = []*runtime.Mount{{HostPath: files, ContainerPath: "/files"}}
	p.begin(config).expectEnd(0, "Completed")
	if got, err := os.ReadFile(filepath.Join(files, "out")); err != nil || string(got) != "[address]\n[address]\n" {
		t.Errorf("the file has %q, %v", got, err)
	}
	p.begin(containerConfig(ref, "/none")).expectEnd(1, "Error")
}

// Probes and hooks run another module of the image, and of an artifact the module itself.
func TestExampleProbes(t *testing.T) {
	world.Need(t, "probes", "worker")
	for _, path := range []string{"probes/pod.yaml", "probes/artifact-pod.yaml"} {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			k := start(t).runManifest(path)
			if answer := k.probe("worker"); answer.GetExitCode() != 0 || string(answer.GetStdout()) != "the last beat was just now\n" {
				t.Errorf("the probe of a worker that lives: %v", answer)
			}
			command := k.named("worker").LivenessProbe.Exec.Command
			if answer := k.exec("worker", &corev1.ExecAction{Command: []string{command[0], "nonsense"}}); answer.GetExitCode() != 2 || !strings.Contains(string(answer.GetStderr()), "usage") {
				t.Errorf("an order that it does not know: %v", answer)
			}
			if answer := k.exec("worker", &corev1.ExecAction{Command: []string{"sh", "-c", "true"}}); answer.GetExitCode() != 127 {
				t.Errorf("a program that is not there: %v", answer)
			}
			c := k.end("worker")
			c.expectEnd(0, "Completed")
			if got, want := c.text(), "worker: up\nworker: drained\n"; got != want {
				t.Errorf("it said %q, want %q", got, want)
			}
		})
	}
}

// A worker that hangs is found by its probe, and by nothing else: it runs.
func TestExampleProbeFails(t *testing.T) {
	world.Need(t, "probes")
	m := start(t)
	ref := world.Registry.Host + "/sunaba/probes:v1"
	m.pull(ref)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	config := containerConfig(ref)
	config.Envs = []*runtime.KeyValue{{Key: "STEPS", Value: []byte("1")}}
	config.Mounts = []*runtime.Mount{{HostPath: dir, ContainerPath: "/run"}}
	c := m.run("wasm").begin(config)
	c.says("worker: hangs")
	var answer *runtime.ExecSyncResponse
	if !node.Within(node.Patience, func() bool {
		answer = must(m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"/check.wasm", "alive"}, Timeout: 20}))
		return answer.GetExitCode() == 1
	}) || string(answer.GetStdout()) != "the last beat was too long ago\n" {
		t.Errorf("the probe of a worker that hangs: %v", answer)
	}
	if got := c.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
		t.Errorf("it is %v", got)
	}
}

// A guest follows its ConfigMap while it runs, and a Linux container sees what it writes.
func TestExamplePage(t *testing.T) {
	world.Need(t, "page", "busybox")
	k := start(t).runManifest("page/pod.yaml")
	url := "http://" + k.ip() + ":8080/"
	shows := func(want string) {
		t.Helper()
		var got string
		if !node.Within(node.Patience, func() bool { got = k.Get(url); return got == want }) {
			t.Fatalf("the page is %q, want %q; the guest said %q", got, want, k.containers["page"].text())
		}
	}
	data := k.configMaps["page"]
	shows("<h1>Sandbox</h1><p>Written by a guest, served by a Linux container.</p>\n")
	for _, title := range []string{"One", "Two", "Three"} {
		data["title"], data["text"] = title, "text of "+title
		project(t, k.volumes["config"], data)
		shows("<h1>" + title + "</h1><p>text of " + title + "</p>\n")
	}
	// Every key is a link through the link, and the mount is read-only for whoever may write there.
	link := k.exec("page", &corev1.ExecAction{Command: []string{"/page.wasm", "-once", "-out", "/config/mine"}})
	if link.GetExitCode() != 1 || !strings.Contains(string(link.GetStderr()), "ead-only") {
		t.Errorf("writing to the ConfigMap: %v", link)
	}
	if names, err := filepath.Glob(filepath.Join(k.volumes["config"], "mine*")); err != nil || len(names) > 0 {
		t.Errorf("the ConfigMap's folder has %v, %v", names, err)
	}
	k.end("page").expectEnd(143, "Error")
	shows("<h1>Three</h1><p>text of Three</p>\n")
}
