// Package ociruntime knows the OCI runtimes of the handlers: which programs they are, what they
// can, and whether they make a container on this machine.
package ociruntime

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
)

// retryTime is after which a trial that did not succeed is repeated when somebody asks: it may have
// been the moment's fault.
const retryTime = time.Minute

// Options configure Open.
type Options struct {
	// Trials is a folder for trial containers, which Open makes and empties; "" = none are made.
	Trials  string
	Cgroups *cgroup.Manager // of the trial containers; needed for trials
	Logger  *slog.Logger
}

// Book keeps a Report of each runtime, and makes it anew when the program is another one.
type Book struct {
	o    Options
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup // trials

	mu    sync.Mutex
	known map[string]*entry
}

// entry is what is known of one runtime. The lock is held while it is asked, not during its trial.
type entry struct {
	mu      sync.Mutex
	program program
	report  Report
	tried   time.Time // when its last trial was started
	failed  bool
}

// program tells one installed program from another.
type program struct {
	path  string
	info  os.FileInfo
	error string // why it is missing
}

func (p program) same(q program) bool {
	if p.info == nil || q.info == nil {
		return p.info == nil && q.info == nil && p.error == q.error && p.error != ""
	}
	return p.path == q.path && os.SameFile(p.info, q.info) && p.info.Size() == q.info.Size() &&
		p.info.ModTime().Equal(q.info.ModTime()) && p.info.Mode() == q.info.Mode()
}

func find(binary string) (p program) {
	path, err := exec.LookPath(binary)
	if err == nil {
		p.path = path
		p.info, err = os.Stat(path)
	}
	if err != nil {
		p.error = err.Error()
	}
	return p
}

// Open asks the runtimes, side by side, what they are, and starts to try them. What trials of a
// server before this one have left is removed.
func Open(o Options, binaries []string) *Book {
	b := &Book{o: o, known: map[string]*entry{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	if o.Trials != "" {
		if err := b.sweep(); err != nil {
			o.Logger.Warn("failed to remove trial containers of OCI runtimes", "error", err)
		}
	}
	var asked sync.WaitGroup
	for _, binary := range binaries {
		asked.Go(func() { b.Of(binary) })
	}
	asked.Wait()
	return b
}

// Of is what is known of a runtime now. It costs a look at the program's file; where that is
// another one, the runtime is asked again.
func (b *Book) Of(binary string) Report {
	b.mu.Lock()
	e := b.known[binary]
	if e == nil {
		e = &entry{}
		b.known[binary] = e
	}
	b.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	now := find(binary)
	if !now.same(e.program) {
		e.program, e.report, e.failed, e.tried = now, Probe(b.ctx, binary), false, time.Time{}
	}
	if !e.report.Missing && (e.tried.IsZero() || e.failed && time.Since(e.tried) > retryTime) {
		b.startTrial(e)
	}
	return e.report
}

// startTrial starts a trial of a runtime whose entry is locked.
func (b *Book) startTrial(e *entry) {
	if b.o.Trials == "" || b.ctx.Err() != nil {
		return
	}
	e.tried, e.failed = time.Now(), false
	tried := e.program
	path := e.report.Path
	b.all.Go(func() {
		err := b.try(b.ctx, path)
		if b.ctx.Err() != nil {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.program.same(tried) {
			return // it is another one by now
		}
		before := e.report.Problem
		e.report.Problem, e.failed = "", err != nil
		if err != nil {
			e.report.Problem = err.Error()
		}
		if e.report.Problem != before {
			level := map[bool]slog.Level{false: slog.LevelInfo, true: slog.LevelWarn}[err != nil]
			b.o.Logger.Log(b.ctx, level, "OCI runtime tested", "runtime", path, "version", e.report.Version, "problem", e.report.Problem)
		}
	})
}

// Close ends the trials.
func (b *Book) Close() error {
	b.stop()
	b.all.Wait()
	return nil
}
