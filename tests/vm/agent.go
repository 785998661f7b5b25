package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// agent is what runs in the machine.
type agent struct {
	mu     sync.Mutex
	events *json.Encoder
}

func (a *agent) say(e event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.At = time.Now()
	if err := a.events.Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "say:", err) // it goes to the console
	}
}

// inside carries out the plan of the folder that the machine was given.
func inside(ctx context.Context) error {
	out, err := os.OpenFile(port, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	a := &agent{events: json.NewEncoder(out)}
	data, err := os.ReadFile(filepath.Join(agentDir, planFile))
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	if err := errors.Join(prepare(p), a.takeJobs(out)); err != nil {
		a.say(event{Fact: &fact{"not prepared", err.Error()}})
		return err
	}
	for _, f := range facts() {
		a.say(event{Fact: &f})
	}
	for _, s := range p.Suites {
		a.suite(ctx, s, p.Env)
	}
	a.say(event{Done: true})
	return nil
}

// prepare mounts what the plan names and switches on swap.
func prepare(p plan) error {
	for _, s := range p.Shares {
		if err := os.MkdirAll(s.Path, 0o755); err != nil {
			return err
		}
		if err := command("mount", "-t", "9p", "-o", shares, s.Tag, s.Path); err != nil {
			return err
		}
	}
	for i, path := range p.Over {
		upper, work := filepath.Join(scratch, fmt.Sprint("upper", i)), filepath.Join(scratch, fmt.Sprint("work", i))
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		if err := command("mount", "-t", "overlay", "-o", "lowerdir="+path+",upperdir="+upper+",workdir="+work, "overlay", path); err != nil {
			return err
		}
	}
	if err := os.Mkdir(standInsDir, 0o755); err != nil {
		return err
	}
	swap := filepath.Join(scratch, "swap")
	return errors.Join(
		command("fallocate", "-l", "512M", swap), command("chmod", "600", swap), command("mkswap", swap), command("swapon", swap),
		command("ip", "link", "set", "lo", "up"), command("sysctl", "-q", "-w", "vm.nr_hugepages=16"))
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// facts are what the suites' results depend on.
func facts() []fact {
	first := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return err.Error()
		}
		text, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return text
	}
	file := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(data))
	}
	return []fact{
		{"kernel", first("uname", "-rv")},
		{"cgroups", first("stat", "-fc", "%T", "/sys/fs/cgroup") + ": " + file("/sys/fs/cgroup/cgroup.controllers")},
		{"security modules", file("/sys/kernel/security/lsm")},
		{"apparmor", file("/sys/module/apparmor/parameters/enabled")},
		{"pressure", strings.Split(file("/proc/pressure/cpu"), "\n")[0]},
		{"systemd", first("systemctl", "--version")},
		{"runc", first("runc", "--version")},
		{"crun", first("crun", "--version")},
		{"criu", first("criu", "--version")},
	}
}

// suite runs one suite and says all of it.
func (a *agent) suite(ctx context.Context, s suite, env []string) {
	a.say(event{Begin: s.Name})
	before := leftBehind()
	begun := time.Now()
	ended := &end{Suite: s.Name}
	ended.Code, ended.Why = a.run(ctx, s, env)
	ended.Took = time.Since(begun)
	ended.LeftOver = since(before)
	for _, pattern := range s.Keep {
		files, err := filepath.Glob(pattern)
		if err != nil {
			ended.Why += "; " + err.Error()
		}
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil {
				name := filepath.Base(filepath.Dir(file)) + "-" + filepath.Base(file)
				a.say(event{File: &kept{Suite: s.Name, Name: name, Data: data}})
			}
		}
	}
	a.say(event{End: ended})
}

// run runs a suite's command to its end and returns its exit code.
func (a *agent) run(ctx context.Context, s suite, env []string) (int, string) {
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
	told := make(chan struct{})
	go func() {
		defer close(told)
		for lines := bufio.NewReader(reader); ; {
			text, err := lines.ReadString('\n')
			if text != "" {
				a.say(event{Line: &line{s.Name, strings.TrimSuffix(text, "\n")}})
			}
			if err != nil {
				return
			}
		}
	}()
	err := cmd.Run()
	writer.Close()
	<-told
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
