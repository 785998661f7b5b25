package suites

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run runs the suite on this machine, with env on top of the environment, hands each line that it
// writes to line and each file that it keeps to file, and says how it ended.
func (s Suite) Run(ctx context.Context, env []string, line func(text string), file func(name string, data []byte)) *End {
	before := leftBehind()
	started := time.Now()
	end := &End{Suite: s.Name}
	end.Code, end.Why = s.command(ctx, env, line)
	end.Took = time.Since(started)
	if !s.Beside {
		end.LeftOver = since(before)
	}
	for _, pattern := range s.Keep {
		files, err := filepath.Glob(pattern)
		if err != nil {
			end.Why += "; " + err.Error()
		}
		for _, path := range files {
			if data, err := os.ReadFile(path); err == nil {
				file(filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path), data)
			}
		}
	}
	return end
}

// command runs the suite's command to its end and returns its exit code.
func (s Suite) command(ctx context.Context, env []string, line func(text string)) (int, string) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir = s.Dir
	cmd.Env = append(append(os.Environ(), env...), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewReader(reader); ; {
			text, err := lines.ReadString('\n')
			if text != "" {
				line(strings.TrimSuffix(text, "\n"))
			}
			if err != nil {
				return
			}
		}
	}()
	err := cmd.Run()
	writer.Close()
	<-read
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return -1, fmt.Sprintf("it took longer than %v", s.Timeout)
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), ""
	case err != nil:
		return -1, err.Error()
	}
	return 0, ""
}
