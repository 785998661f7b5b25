package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/tests/suites"
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
		a.say(event{Fact: &suites.Fact{Name: "not prepared", Value: err.Error()}})
		return err
	}
	for _, f := range suites.Facts() {
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

// suite runs one suite and says all of it.
func (a *agent) suite(ctx context.Context, s suites.Suite, env []string) {
	a.say(event{Begin: s.Name})
	end := s.Run(ctx, env,
		func(text string) { a.say(event{Line: &line{s.Name, text}}) },
		func(name string, data []byte) { a.say(event{File: &kept{Suite: s.Name, Name: name, Data: data}}) })
	a.say(event{End: end})
}
