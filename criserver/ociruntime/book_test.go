package ociruntime

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
)

// logger keeps what is logged. Trials are over when it is read.
func logger() (*slog.Logger, *bytes.Buffer) {
	var said bytes.Buffer
	return slog.New(slog.NewTextHandler(&said, nil)), &said
}

// fake is a runtime that writes down what it is asked; make decides whether it can make containers.
func fake(dir, version, create string) string {
	return fmt.Sprintf(`case "$*" in
--version) echo "fake version %[2]s" ;;
features) exit 1 ;;
*" create "*) echo "$*" >> %[1]s/asked; mkdir -p "$2/c"; %[3]s ;;
*" delete "*) echo "$*" >> %[1]s/asked; rm -r "$2/c" ;;
esac`, dir, version, create)
}

// noCgroups wants that no cgroup of a trial is left but those of before. Servers of other tests make
// trials meanwhile, and remove them.
func noCgroups(t *testing.T, before []string) {
	t.Helper()
	left := trialCgroups()
	for end := time.Now().Add(20 * time.Second); len(left) > 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		now := trialCgroups()
		left = slices.DeleteFunc(left, func(dir string) bool { return slices.Contains(before, dir) || !slices.Contains(now, dir) })
	}
	if len(left) > 0 {
		t.Errorf("cgroups left: %q", left)
	}
}

func trialCgroups() []string {
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/sunaba-trial-*", "/sys/fs/cgroup/*/sunaba-trial-*"} {
		found, _ := filepath.Glob(pattern)
		all = append(all, found...)
	}
	return all
}

func groups(t *testing.T) *cgroup.Manager {
	t.Helper()
	m, err := cgroup.New("cgroupfs")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left of trials: %v, %v", left, err)
	}
}

// TestInstalledLater: a runtime that comes, becomes another one and goes is noticed without a
// restart.
func TestInstalledLater(t *testing.T) {
	dir := t.TempDir()
	log, said := logger()
	trials := filepath.Join(dir, "trials")
	path := filepath.Join(dir, "runtime")
	b := Open(Options{Trials: trials, Cgroups: groups(t), Logger: log}, []string{path})
	defer b.Close()
	if r := b.Of(path); !r.Missing || !strings.Contains(r.Problem, "no such file") {
		t.Errorf("before it is there: %+v", r)
	}
	script(t, path, fake(dir, "1", "exit 0"))
	if r := b.Of(path); r.Missing || r.Problem != "" || r.Version != "fake 1" {
		t.Errorf("installed: %+v", r)
	}
	b.all.Wait()
	if r := b.Of(path); r.Problem != "" {
		t.Errorf("after its trial: %+v", r)
	}
	empty(t, trials)
	script(t, path, fake(dir, "22", "echo it breaks here >&2; echo with a stack >&2; exit 1"))
	b.Of(path)
	b.all.Wait()
	if r := b.Of(path); r.Missing || r.Version != "fake 22" || r.Problem != "it breaks here" ||
		r.Text("h") != fmt.Sprintf("OCI runtime %q of handler %q makes no container here: it breaks here", path, "h") {
		t.Errorf("replaced by a broken one: %+v, %s", r, r.Text("h"))
	}
	empty(t, trials)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if r := b.Of(path); !r.Missing {
		t.Errorf("removed: %+v", r)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if n := strings.Count(string(asked), " create "); err != nil || n != 2 {
		t.Errorf("%d trials, want one for each program: %v\n%s", n, err, asked)
	}
	if !strings.Contains(said.String(), "level=WARN") || !strings.Contains(said.String(), "it breaks here") {
		t.Errorf("the log does not tell of it: %s", said)
	}
}

// TestTrialIsRepeated: what did not succeed may succeed later, with the same program.
func TestTrialIsRepeated(t *testing.T) {
	dir := t.TempDir()
	log, _ := logger()
	path := script(t, filepath.Join(dir, "runtime"), fake(dir, "1", "[ -e "+dir+"/mended ] || { echo not yet >&2; exit 1; }"))
	b := Open(Options{Trials: filepath.Join(dir, "trials"), Cgroups: groups(t), Logger: log}, []string{path})
	defer b.Close()
	b.all.Wait()
	if r := b.Of(path); r.Problem != "not yet" {
		t.Fatalf("%+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "mended"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Of(path)
	b.all.Wait()
	if r := b.Of(path); r.Problem != "not yet" {
		t.Errorf("it was tried again at once: %+v", r)
	}
	e := b.known[path]
	e.mu.Lock()
	e.tried = time.Now().Add(-2 * retryTime)
	e.mu.Unlock()
	b.Of(path)
	b.all.Wait()
	if r := b.Of(path); r.Problem != "" {
		t.Errorf("mended: %+v", r)
	}
}

// TestSweep removes a trial whose server was killed, with the container that was made.
func TestSweep(t *testing.T) {
	before := trialCgroups()
	dir := t.TempDir()
	log, said := logger()
	trials := filepath.Join(dir, "trials")
	path := script(t, filepath.Join(dir, "runtime"), fake(dir, "1", "exit 0"))
	for _, sub := range []string{"sunaba-trial-1/state/c", "sunaba-trial-2"} {
		if err := os.MkdirAll(filepath.Join(trials, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(trials, "sunaba-trial-1", runtimeFile), []byte(path), 0o600); err != nil {
		t.Fatal(err)
	}
	// The runtime of this one was killed before it wrote its state: a process is in its cgroup.
	cut := filepath.Join(trials, "sunaba-trial-cut")
	if err := errors.Join(os.MkdirAll(cut, 0o700), os.WriteFile(filepath.Join(cut, runtimeFile), []byte(path), 0o600)); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := groups(t).Place("/sunaba-trial-cut", child.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()

	b := Open(Options{Trials: trials, Cgroups: groups(t), Logger: log}, nil)
	defer b.Close()
	empty(t, trials)
	<-ended
	noCgroups(t, before)
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil || !strings.Contains(string(asked), "delete --force sunaba-trial-1") {
		t.Errorf("%v: %s\n%s", err, asked, said)
	}
}

// TestKilledServer: a runtime ends with the server that tries it, and makes nothing when the next
// server has removed its trial.
func TestKilledServer(t *testing.T) {
	const place = "TRIALS_OF_A_SERVER"
	if dir := os.Getenv(place); dir != "" {
		log, _ := logger()
		b := Open(Options{Trials: filepath.Join(dir, "trials"), Cgroups: groups(t), Logger: log}, []string{filepath.Join(dir, "runtime")})
		b.all.Wait()
		return
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	script(t, path("runtime"), fake(dir, "1", fmt.Sprintf("echo $$ >%[1]s.new; mv %[1]s.new %[1]s; sleep 2; echo >%[2]s", path("pid"), path("late"))))
	server := exec.Command("/proc/self/exe", "-test.run=^TestKilledServer$")
	server.Env = append(os.Environ(), place+"="+dir)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	pid := ""
	for pid == "" {
		text, _ := os.ReadFile(path("pid"))
		pid = strings.TrimSpace(string(text))
		select {
		case err := <-ended:
			t.Fatalf("the server has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	for {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := os.Stat(path("late")); err == nil {
		t.Error("the runtime has worked on")
	}
}

// TestTrialOfRunc has the real one make a container.
func TestTrialOfRunc(t *testing.T) {
	before := trialCgroups()
	if os.Geteuid() != 0 {
		t.Fatal("a container needs root")
	}
	log, said := logger()
	trials := filepath.Join(t.TempDir(), "trials")
	b := Open(Options{Trials: trials, Cgroups: groups(t), Logger: log}, []string{"runc"})
	defer b.Close()
	b.all.Wait()
	if r := b.Of("runc"); r.Problem != "" || r.Missing || !strings.HasPrefix(r.Version, "runc ") || !filepath.IsAbs(r.Path) {
		t.Errorf("%+v\n%s", r, said)
	}
	empty(t, trials)
	noCgroups(t, before)
}
