package modulepod

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

func TestManifest(t *testing.T) {
	p := Pod{
		File: "/x/My_App.v2.wasm", Args: []string{"-n", "$(HOME)"}, Env: []string{"A=$x=1"}, Workdir: "/data",
		Dirs: []specs.Mount{{Source: "/host", Destination: "/data", Options: []string{"rbind", "ro"}}}, User: &wasm.User{UID: 1, GID: 2},
	}
	data, err := p.Manifest("localhost/x:y")
	if err != nil {
		t.Fatal(err)
	}
	objects, notes, err := manifest.Parse("app", data, manifest.Options{})
	if err != nil || len(objects) != 1 || len(notes) > 0 {
		t.Fatalf("%s: %v, %q", data, err, notes)
	}
	pod := objects[0].Pod()
	c, err := json.Marshal(pod.Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"name":"my-app-v2"`, `"args":["-n","$$(HOME)"]`, `{"name":"A","value":"$$x=1"}`, `"workingDir":"/data"`, `"imagePullPolicy":"Never"`,
		`"readOnly":true,"mountPath":"/data"`, `"runAsUser":1,"runAsGroup":2`,
	} {
		if !strings.Contains(string(c), part) {
			t.Errorf("%s is not in %s", part, c)
		}
	}
	if pod.Name != "my-app-v2" || pod.Spec.Volumes[0].HostPath.Path != "/host" || pod.Spec.RestartPolicy != "Never" {
		t.Errorf("pod %+v", pod)
	}
}

func TestName(t *testing.T) {
	for file, want := range map[string]string{
		"app.wasm": "localhost/app:local", "/a/Big App__2.wasm": "localhost/big-app-2:local", "--.wasm": "localhost/module:local",
		strings.Repeat("x", 90): "localhost/" + strings.Repeat("x", 40) + ":local",
	} {
		if got := Name(file); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

func TestLives(t *testing.T) {
	own, err := process(os.Getpid())
	if err != nil || !lives(own) {
		t.Errorf("own process %q, %v", own, err)
	}
	for _, owner := range []string{own + "1", "0-1", "x", ""} {
		if lives(owner) {
			t.Errorf("%q lives", owner)
		}
	}
}

// A process that has ended and whose parent has not asked for its end has ended.
func TestEndedProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	owner, err := process(cmd.Process.Pid)
	if err != nil || !lives(owner) {
		t.Errorf("process %q: %v", owner, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if lives(owner) {
		t.Errorf("process %q has ended and is taken to run", owner)
	}
	_ = cmd.Wait() // tells that it was killed
}
