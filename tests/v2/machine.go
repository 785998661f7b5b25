package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/suites"
	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

// A machine and this command share a folder.
const (
	firstFile      = "first.sh"  // its first process
	agentFile      = "agent"     // this command
	planFile       = "plan.json" // the suite
	outputFile     = "output"    // what the suite says
	endFile        = "end.json"  // how it ended; there once it has
	keptDir        = "kept"      // files of the suite
	umid           = "machine"   // the kernel's name of it, and its folder there
	diskFile       = "disk"      // its disk, which outlives it, sparse
	diskSize       = 2 << 30     // of it, in bytes
	memory         = "4G"        // of the machine; what is not used costs nothing
	memoryDir      = "/dev/shm"  // where its memory is a file: a tmpfs
	commandTimeout = time.Hour   // of -command
	pollEvery      = time.Second / 10
)

// plan is what a machine is to do.
type plan struct {
	Suite suites.Suite
	Env   []string
}

// ending is what a machine says at last.
type ending struct {
	End   *suites.End
	Facts []suites.Fact
}

// machine is one that runs one suite.
type machine struct {
	kernel    string // file
	tree      string // folder of the root file system with systemd; "" for the host's own, without systemd
	processor int    // of the host. A system call is a hand-over between two of its threads: on two processors it takes ten times as long
	see       []string
	env       []string
	report    *suites.Report
	host      *builds.Host // compiles what the suite wants compiled
	facts     *sync.Once
}

// run boots the machine, tells the report what the suite says, and returns when the machine has
// ended.
func (m machine) run(ctx context.Context, s suites.Suite) (err error) {
	share, err := os.MkdirTemp("", "sunaba-v2-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(share)) }()
	if err := m.fill(share, s); err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(share, outputFile))
	if err != nil {
		return err
	}
	defer output.Close()
	if err := m.report.Open(s.Name); err != nil {
		return err
	}
	// A machine that hangs is ended some time after its suite should have been.
	ctx, cancel := context.WithTimeout(ctx, s.Timeout+2*time.Minute)
	defer cancel()
	var building sync.WaitGroup
	follow := func() error { return errors.Join(m.follow(output, s.Name), takeJobs(m.host, share, &building)) }
	console, err := m.boot(ctx, share, follow)
	for errors.Is(err, errCut) {
		console, err = m.boot(ctx, share, follow)
	}
	building.Wait()
	if err != nil {
		return fmt.Errorf("the machine: %w; its console ends with\n%s", err, suites.Tail(console, 30))
	}
	data, err := os.ReadFile(filepath.Join(share, endFile))
	if err != nil {
		return fmt.Errorf("the machine ended before its suite did; its console ends with\n%s", suites.Tail(console, 30))
	}
	var last ending
	if err := json.Unmarshal(data, &last); err != nil || last.End == nil {
		return fmt.Errorf("read how the suite ended: %q: %w", data, err)
	}
	m.facts.Do(func() {
		for _, f := range last.Facts {
			m.report.Fact(f.Name, f.Value)
		}
	})
	return errors.Join(m.keep(share, s.Name), m.report.Ended(last.End))
}

// fill puts into the folder what the machine needs.
func (m machine) fill(share string, s suites.Suite) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	data, err := json.Marshal(plan{s, m.env})
	if err != nil {
		return err
	}
	return errors.Join(
		os.Mkdir(filepath.Join(share, buildsDir), 0o755),
		copyFile(filepath.Join(m.root(), "tests/v2", firstFile), filepath.Join(share, firstFile)),
		copyFile(self, filepath.Join(share, agentFile)),
		os.WriteFile(filepath.Join(share, planFile), data, 0o644), addDisk(share))
}

// addDisk makes the machine's disk.
func addDisk(share string) error {
	file := filepath.Join(share, diskFile)
	return errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, diskSize))
}

// errCut says that the suite has the power cut.
var errCut = errors.New("the power was cut")

// cut is errCut if the suite of a machine wants that, once.
func cut(share string) error {
	err := os.Remove(filepath.Join(share, suites.CutFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(errCut, err, os.RemoveAll(filepath.Join(share, umid)))
}

// root is the project's folder, the first that a machine sees.
func (m machine) root() string { return m.see[0] }

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// boot runs the machine to its end, and calls follow meanwhile and once after it. It returns what
// the kernel said. A kernel that boots again stays the same process.
//
// # Errors
//
// errCut if it was ended as by a loss of power.
func (m machine) boot(ctx context.Context, share string, follow func() error) (console string, err error) {
	tree, see := "/", m.see
	if m.tree != "" {
		tree = m.tree
	} else {
		see = masked(see)
	}
	cmd := exec.Command("taskset", "-c", strconv.Itoa(m.processor), m.kernel,
		"mem="+memory, "ncpus=1", "seccomp=on", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"init="+filepath.Join(share, firstFile), "share="+share, "see="+strings.Join(see, ","), "tree="+tree,
		"uml_dir="+share+"/", "umid="+umid, "ubd0="+filepath.Join(share, diskFile), "con=null", "con0=null,fd:1", "loglevel=4", "panic=-1")
	cmd.Env = append(os.Environ(), "TMPDIR="+memoryDir)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start the kernel: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			// The kernel's exit code says nothing: the suite's end does.
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = nil
			}
			return said.String(), errors.Join(err, follow())
		case <-ctx.Done():
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			<-ended
			return said.String(), errors.Join(context.Cause(ctx), follow())
		case <-time.After(pollEvery):
			if err := errors.Join(follow(), cut(share)); err != nil {
				_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
				<-ended
				return said.String(), err
			}
		}
	}
}

// masked are the folders among these that a machine over the host's own root has nothing of, unless
// it is told to see them.
func masked(folders []string) []string {
	var out []string
	for _, folder := range folders {
		for _, hidden := range []string{"/tmp/", "/run/", "/var/lib/sunaba/"} {
			if strings.HasPrefix(folder, hidden) {
				out = append(out, folder)
			}
		}
	}
	return out
}

// follow tells the report of the whole lines that have been written since the last time.
func (m machine) follow(output *os.File, suite string) error {
	at, err := output.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(output)
	if err != nil {
		return err
	}
	end := bytes.LastIndexByte(data, '\n') + 1
	for text := range strings.Lines(string(data[:end])) {
		if err := m.report.Line(suite, strings.TrimSuffix(text, "\n")); err != nil {
			return err
		}
	}
	_, err = output.Seek(at+int64(end), io.SeekStart)
	return err
}

// keep keeps the suite's files.
func (m machine) keep(share, suite string) error {
	files, err := filepath.Glob(filepath.Join(share, keptDir, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := m.report.File(suite, filepath.Base(file), data); err != nil {
			return err
		}
	}
	return nil
}

// runInside runs the suite of the folder that the machine shares with its host.
func runInside(ctx context.Context, share string) error {
	data, err := os.ReadFile(filepath.Join(share, planFile))
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	output, err := os.OpenFile(filepath.Join(share, outputFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer output.Close()
	if err := errors.Join(os.MkdirAll(filepath.Join(share, keptDir), 0o755), standIn.Install(filepath.Join(share, agentFile))); err != nil {
		return err
	}
	var errs []error
	last := ending{Facts: suites.Facts()}
	last.End = p.Suite.Run(ctx, p.Env,
		func(text string) {
			if _, err := fmt.Fprintln(output, text); err != nil {
				errs = append(errs, err)
			}
		},
		func(name string, data []byte) {
			errs = append(errs, os.WriteFile(filepath.Join(share, keptDir, name), data, 0o644))
		})
	if data, err = json.Marshal(last); err != nil {
		return err
	}
	return errors.Join(append(errs, os.WriteFile(filepath.Join(share, endFile), data, 0o644))...)
}
