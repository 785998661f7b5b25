package killer

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Serve()
	if dir := os.Getenv("SUNABA_KILLER_VICTIM"); dir != "" {
		work(dir)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work says that it has begun, and makes three folders when it is told to.
func work(dir string) {
	_, _ = os.Stdout.Write([]byte{0})
	_, _ = os.Stdin.Read(make([]byte, 1))
	for i := range 3 {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			os.Exit(1)
		}
	}
}

// begin starts a victim that waits to be told, and returns what tells it when it is closed.
func begin(t *testing.T, dir string) (*exec.Cmd, io.Closer) {
	t.Helper()
	victim := exec.Command("/proc/self/exe")
	victim.Env = append(os.Environ(), "SUNABA_KILLER_VICTIM="+dir)
	in, err := victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // what its runtime does to begin is no step of its work
		t.Fatal(err)
	}
	return victim, in
}

// isWatched says whether a killer has every thread of a process.
func isWatched(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if text, err := os.ReadFile(thread); err == nil && strings.Contains(string(text), "TracerPid:\t0\n") {
			return false
		}
	}
	return true
}

// The victim dies before its second step, whichever thread does it; without a count it lives and
// its steps are told.
func TestKill(t *testing.T) {
	for at, want := range []int{3, 0, 1, 2} {
		dir := t.TempDir()
		victim, tell := begin(t, dir)
		k, err := Send(Order{PID: victim.Process.Pid, At: at})
		if err != nil {
			t.Fatal(err)
		}
		tell.Close()
		err = victim.Wait()
		<-k.Ended()
		report, lerr := k.Leave()
		if lerr != nil {
			t.Error(lerr)
		}
		made, _ := os.ReadDir(dir)
		if len(made) != want || (err != nil) != (at > 0) || report.Killed != (at > 0) {
			t.Errorf("killed at %d: %d folders, %v, %+v", at, len(made), err, report)
		}
		var folders int
		for _, s := range report.Steps {
			if s.Call == "mkdirat" {
				folders++
			}
		}
		if wanted := want + min(at, 1); folders != wanted {
			t.Errorf("killed at %d: %d steps that make a folder, want %d: %v", at, folders, wanted, report.Steps)
		}
	}
}

// A victim that is let go runs on.
func TestLeave(t *testing.T) {
	dir := t.TempDir()
	victim, tell := begin(t, dir)
	k, err := Send(Order{PID: victim.Process.Pid, At: 2})
	if err != nil {
		t.Fatal(err)
	}
	if report, err := k.Leave(); err != nil || report.Killed {
		t.Errorf("%+v, %v", report, err)
	}
	tell.Close()
	if err := victim.Wait(); err != nil {
		t.Error(err)
	}
	if made, _ := os.ReadDir(dir); len(made) != 3 {
		t.Errorf("%d folders", len(made))
	}
}

// A process that does not exist yet is awaited.
func TestAwait(t *testing.T) {
	dir := t.TempDir()
	k, err := Send(Order{Await: filepath.Join(dir, "*.pid"), At: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "made"), 0o700); err != nil {
		t.Fatal(err)
	}
	victim, tell := begin(t, filepath.Join(dir, "made"))
	if err := os.WriteFile(filepath.Join(dir, "victim.pid"), []byte(strconv.Itoa(victim.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !isWatched(t, victim.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody watches it")
		}
	}
	time.Sleep(50 * time.Millisecond) // and stops the last that it has got
	tell.Close()
	if err := victim.Wait(); err == nil {
		t.Error("it was not killed")
	}
	if report, err := k.Leave(); err != nil || !report.Killed {
		t.Errorf("%+v, %v", report, err)
	}
}
