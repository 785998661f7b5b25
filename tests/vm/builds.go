package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Suites compile programs: the project's binaries, guests, contents of images. In the machine, which may be an emulated
// one, the names of the compilers lead to this command: the machine asks its host, which has the same sources at the same
// path, and copies the result out of the shared folder.

const (
	buildsDir    = "builds"                   // of the shared folder: what the host built
	buildsSocket = scratch + "/builds.socket" // where the agent takes jobs
	standInsDir  = scratch + "/bin"           // folder in PATH with the compilers' names
)

// compilers are the programs that are stood in for.
var compilers = []string{"go", "clang", "node"}

// buildVariables are the environment variables that matter to them.
var buildVariables = []string{"GOOS", "GOARCH", "GOARM", "GOFLAGS", "CGO_ENABLED"}

// job is a call of a compiler without its -o.
type job struct {
	ID   int
	Dir  string
	Env  []string
	Args []string // the program first
}

// built is the host's answer.
type built struct {
	ID   int
	File string // in buildsDir, "" if there is none
	Said string // by the compiler
	Why  string // there is no file
}

// standIn is this command under a compiler's name. What only the machine has is compiled in the machine.
func standIn(ctx context.Context, args []string, stderr io.Writer) (int, error) {
	name := filepath.Base(args[0])
	dir, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	j, out, ok := jobOf(name, args[1:], dir, os.Getenv(rootVariable))
	if !ok {
		return 1, becomeReal(name, args)
	}
	answer, err := ask(ctx, j)
	if err != nil {
		return 1, err
	}
	fmt.Fprint(stderr, answer.Said)
	if answer.Why != "" {
		fmt.Fprintln(stderr, answer.Why)
		return 1, nil
	}
	data, err := os.ReadFile(filepath.Join(agentDir, buildsDir, answer.File))
	if err != nil {
		return 1, err
	}
	return 0, errors.Join(os.MkdirAll(filepath.Dir(out), 0o755), os.WriteFile(out, data, 0o755))
}

// jobOf turns a compiler's arguments into a job and the file that is to be made, if the host can do it: it makes one file,
// of sources in the project's folder.
func jobOf(name string, args []string, dir, root string) (j job, out string, ok bool) {
	j = job{Dir: dir, Args: []string{name}}
	if name == "go" && (len(args) == 0 || args[0] != "build" && (args[0] != "test" || !slices.Contains(args, "-c"))) {
		return j, "", false
	}
	for i := 0; i < len(args); i++ {
		if args[i] == "-o" && i+1 < len(args) {
			i++
			out = args[i]
			continue
		}
		if filepath.IsAbs(args[i]) && !within(args[i], root) {
			return j, "", false
		}
		j.Args = append(j.Args, args[i])
	}
	if out == "" || root == "" || !within(dir, root) {
		return j, "", false
	}
	if strings.HasSuffix(out, "/") {
		out = filepath.Join(out, filepath.Base(filepath.Join(dir, args[len(args)-1])))
	}
	for _, variable := range buildVariables {
		if value, set := os.LookupEnv(variable); set {
			j.Env = append(j.Env, variable+"="+value)
		}
	}
	return j, out, true
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// becomeReal becomes the compiler that is next in PATH.
func becomeReal(name string, args []string) error {
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); dir != standInsDir && err == nil && info.Mode()&0o111 != 0 {
			return &os.PathError{Op: "exec", Path: file, Err: syscall.Exec(file, args, os.Environ())}
		}
	}
	return fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// ask gives a job to the agent and waits for its answer.
func ask(ctx context.Context, j job) (answer built, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", buildsSocket)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(j); err != nil {
		return answer, err
	}
	err = json.NewDecoder(conn).Decode(&answer)
	return answer, err
}

// takeJobs makes the compilers' stand-ins and hands their jobs to the host, whose answers come through port.
func (a *agent) takeJobs(port io.Reader) error {
	for _, name := range compilers {
		if err := os.Symlink(filepath.Join(agentDir, agentFile), filepath.Join(standInsDir, name)); err != nil {
			return err
		}
	}
	listener, err := net.Listen("unix", buildsSocket)
	if err != nil {
		return err
	}
	waiting := make(chan chan built, 1)
	go func() {
		// One job after another: the next answer is that of the last job.
		for answers := json.NewDecoder(port); ; {
			var answer built
			if err := answers.Decode(&answer); err != nil {
				return
			}
			(<-waiting) <- answer
		}
	}()
	go func() {
		for id := 1; ; id++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var j job
			if err := json.NewDecoder(conn).Decode(&j); err == nil {
				j.ID = id
				answer := make(chan built)
				waiting <- answer
				a.say(event{Build: &j})
				_ = json.NewEncoder(conn).Encode(<-answer) // whoever asked may have been killed
			}
			conn.Close()
		}
	}()
	return nil
}

// work does a job on the host.
func (b *builder) work(j job) built {
	answer := built{ID: j.ID}
	if len(j.Args) == 0 || !slices.Contains(compilers, j.Args[0]) || !within(j.Dir, b.Root) {
		answer.Why = fmt.Sprintf("the host does not run %q in %q", j.Args, j.Dir)
		return answer
	}
	name := fmt.Sprint(j.ID)
	args := slices.Clone(j.Args)
	at := len(args)
	if j.Args[0] == "go" {
		at = 2 // after "build" or "test"
	}
	args = slices.Insert(args, at, "-o", filepath.Join(b.Out, buildsDir, name))
	cmd := exec.CommandContext(b.Context, "nice", append([]string{"-n", "10"}, args...)...)
	cmd.Dir = j.Dir
	cmd.Env = append(os.Environ(), j.Env...)
	said, err := cmd.CombinedOutput()
	answer.Said = string(said)
	if err != nil {
		answer.Why = fmt.Sprintf("%s on the host: %v", j.Args[0], err)
		return answer
	}
	answer.File = name
	return answer
}
