package node

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// mostProcesses run tests side by side: scenarios wait more than they compute, but other packages
// run beside them.
const mostProcesses = 3

// namesVariable is set for a process that only prints the names of the tests.
const namesVariable = "SUNABA_TEST_NAMES"

// alone are the flags of tests with which one process runs them all: those that choose tests, and
// those with a file that several processes would write.
var alone = []string{"run", "list", "bench", "fuzz", "coverprofile", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace"}

// sharedVariable is set for processes that run tests by turns: the folder with sharedFile and what
// they have taken of it.
const sharedVariable = "SUNABA_TEST_SHARED"

// sharedFile has the patterns of the tests that are shared out, one a line.
const sharedFile = "shared"

// parts are the arguments of the processes that run the tests, in the order in which their output
// is printed, and the patterns of the tests that they share out among themselves: none if there is
// one process.
func (g Ground) parts() (parts [][]string, shared []string, err error) {
	n := 1
	if g.Tests != nil {
		if !flag.Parsed() {
			flag.Parse()
		}
		n = min(mostProcesses, runtime.NumCPU())
	}
	for _, name := range alone {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != f.DefValue {
			n = 1
		}
	}
	if n <= 1 {
		return [][]string{os.Args[1:]}, nil, nil
	}
	names, err := testNames()
	if err != nil {
		return nil, nil, err
	}
	shared = divide(names, g.Subtests)
	// Without a log of what the tests read, go test does not keep their result.
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile=") })
	return slices.Repeat([][]string{args}, min(n, len(shared))), shared, nil
}

// divide are patterns for -test.run, each for a test, or for one subtest of a test with subtests.
// Those of subtests are the first.
func divide(names []string, subtests map[string][]string) (patterns []string) {
	var whole []string
	for _, name := range names {
		test := "^" + name + "$"
		if len(subtests[name]) == 0 {
			whole = append(whole, test)
		}
		for _, sub := range subtests[name] {
			patterns = append(patterns, test+"/^"+regexp.QuoteMeta(sub)+"$")
		}
	}
	return append(patterns, whole...)
}

// testNames are the names of what -test.run chooses from, in the order in which it runs.
func testNames() ([]string, error) {
	cmd := exec.Command("/proc/self/exe", "-test.list=^(Test|Fuzz|Example)")
	cmd.Env = append(os.Environ(), namesVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// InTurns makes a process of a Ground with Tests run them: all that the flags choose, or, where
// several processes share them out, one after another that no other process has taken.
func InTurns(tests func() int) func() int {
	return func() int {
		folder := os.Getenv(sharedVariable)
		if folder == "" {
			return tests()
		}
		code := 0
		for {
			pattern, err := take(folder)
			if err == nil && pattern != "" {
				err = flag.Set("test.run", pattern)
			}
			if err != nil {
				fmt.Println("take a test:", err)
				return 1
			}
			if pattern == "" {
				return code
			}
			code = max(code, tests())
		}
	}
}

// take is the next pattern that no process has taken, "" if there is none.
func take(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, sharedFile))
	if err != nil {
		return "", err
	}
	for i, pattern := range strings.Fields(string(text)) {
		err := os.Mkdir(filepath.Join(folder, sharedFile+"-"+strconv.Itoa(i)), 0o700)
		if err == nil {
			return pattern, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return "", nil
}

// runParts starts this program once for each part and returns the greatest exit code. The first
// part's output is printed as it comes, each other's in one piece.
func runParts(folder, variable string, parts [][]string, shared []string, out io.Writer) (code int, err error) {
	var env []string
	if len(shared) > 0 {
		env = append(env, sharedVariable+"="+folder)
		if err := os.WriteFile(filepath.Join(folder, sharedFile), []byte(strings.Join(shared, "\n")), 0o600); err != nil {
			return 1, err
		}
	}
	said := make([]*os.File, len(parts)) // files, so that nobody waits for a process that a test has left
	running := make([]*exec.Cmd, len(parts))
	for i, args := range parts {
		own := filepath.Join(folder, fmt.Sprint(i+1))
		if err := linkFiles(filepath.Join(folder, "bin"), filepath.Join(own, "bin")); err != nil {
			return 1, err
		}
		cmd := Again(args, append(env, variable+"="+own)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, out
		if i > 0 {
			if said[i], err = os.Create(filepath.Join(own, "output")); err != nil {
				return 1, err
			}
			defer said[i].Close()
			cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, said[i], said[i]
		}
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		if err := cmd.Start(); err != nil {
			return 1, err // what was started ends with this process
		}
		running[i] = cmd
	}
	for i, cmd := range running {
		ended := cmd.Wait()
		if i > 0 {
			if _, err := said[i].Seek(0, io.SeekStart); err != nil {
				return 1, err
			}
			if _, err := io.Copy(out, said[i]); err != nil {
				return 1, err
			}
		}
		var exit *exec.ExitError
		if errors.As(ended, &exit) {
			code = max(code, exit.ExitCode(), 1)
		} else if ended != nil {
			return 1, ended
		}
	}
	return code, nil
}

// linkFiles gives the files of a folder names in another one, which it makes.
func linkFiles(from, to string) error {
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Link(filepath.Join(from, f.Name()), filepath.Join(to, f.Name())); err != nil {
			return err
		}
	}
	return nil
}
