package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// variant is one way of running critest.
type variant struct {
	name     string
	handlers string   // TOML; "" for the built-in table, whose default is runc
	args     []string // of critest
	focus    string   // which specs; "" for all
	crun     bool     // the unified cgroup hierarchy is hidden beside version 1 controllers, see node.HideUnified
}

// variants stand in the order in which they can run one after another: what crun needs hidden stays
// hidden.
var variants = []variant{
	{name: "runc"},
	{name: "named", args: []string{"--runtime-handler=runc"}},
	{name: "websocket", args: []string{"--websocket-exec", "--websocket-attach", "--websocket-portforward"}, focus: "Streaming"},
	{name: "own", handlers: "[handlers.runc]\ntype = \"oci\"\nshim_scope = \"pod\"\ndefault = true\n"}, // a shim for each pod
	{name: "crun", handlers: "[handlers.crun]\ntype = \"oci\"\nbinary = \"crun\"\ndefault = true\n", crun: true},
}

func variantNames() []string {
	var names []string
	for _, v := range variants {
		names = append(names, v.name)
	}
	return names
}

// upstreamDigest is the digest of test-image-digest in critest's constants. Its image cannot be
// made again, so the local one's digest is put in its place, which is as long.
const upstreamDigest = "9700f9a2f5bf2c45f2f605a0bd3bce7cf37420ec9d3ed50ac2758413308766bf"

// inside runs the variants one after another.
func (s *settings) inside(ctx context.Context, _ []string) error {
	if err := node.Loopback(); err != nil {
		return err
	}
	mirror, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer mirror.Close()
	digest, err := pushImages(ctx, mirror, s.sources, filepath.Join(s.cache, "debian"))
	if err != nil {
		return fmt.Errorf("pack images: %w", err)
	}
	work, err := os.MkdirTemp("", "sunaba-critest-")
	if err != nil {
		return err
	}
	defer os.Remove(work) // only the node's folder is in it, which goes with the node
	// The root of a user namespace passes through it to its root filesystem.
	if err := os.Chmod(work, 0o711); err != nil {
		return err
	}
	program := filepath.Join(s.cache, "critest-"+s.variants[0].name) // other processes run others
	defer os.Remove(program)
	if err := patch(s.critest, program, digest); err != nil {
		return err
	}
	results, err := s.runVariants(ctx, mirror.Host, program, work)
	summarize(s.stdout, results)
	if s.containerd != "" {
		compare(s.stdout, results)
	}
	if s.plugin {
		err = errors.Join(err, lost(results))
	}
	return err
}

// runVariants runs each variant against sunaba and, when that was asked for, against containerd.
func (s *settings) runVariants(ctx context.Context, mirror, program, work string) ([]result, error) {
	targets := []target{s.sunaba}
	if s.plugin {
		targets[0] = s.startPlugin
	}
	if s.containerd != "" {
		targets = append(targets, s.startContainerd)
	}
	hidden := false
	var results []result
	var failures []error
	for _, v := range s.variants {
		if v.crun && !hidden {
			if err := node.HideUnified(filepath.Join(work, "cgroup")); err != nil {
				return results, err
			}
			hidden = true
		}
		for _, start := range targets {
			r, err := s.runVariant(ctx, start, v, mirror, program, work)
			if err != nil {
				failures = append(failures, fmt.Errorf("variant %s: %w", v.name, err))
			}
			if r.specs != nil {
				results = append(results, r)
			}
			if ctx.Err() != nil {
				return results, errors.Join(failures...)
			}
		}
	}
	return results, errors.Join(failures...)
}

// patch copies critest with the local image's digest in it.
func patch(from, to, digest string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read critest (make builds it): %w", err)
	}
	if len(digest) != len(upstreamDigest) || !bytes.Contains(data, []byte(upstreamDigest)) {
		return fmt.Errorf("critest %q does not hold the digest %s", from, upstreamDigest)
	}
	data = bytes.ReplaceAll(data, []byte(upstreamDigest), []byte(digest))
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// runVariant runs critest against a server of its own and writes its report. What containerd fails
// is no error: it is there to be compared with.
func (s *settings) runVariant(ctx context.Context, start target, v variant, mirror, program, work string) (result, error) {
	srv, err := start(ctx, v, mirror, work)
	if err != nil {
		return result{}, err
	}
	r := result{server: srv.name, variant: v.name}
	out := filepath.Join(s.cache, "report", r.title())
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return r, errors.Join(err, srv.close(ctx, out))
	}
	begun := time.Now()
	fmt.Fprintf(s.stdout, "== critest %s\n", r.title())
	ran := s.critestRun(ctx, v, srv.socket, program, out)
	r.took = time.Since(begun)

	closed := srv.close(context.WithoutCancel(ctx), out)
	var reported error
	if r.specs, reported = readReport(filepath.Join(out, reportFile)); reported != nil {
		return r, errors.Join(ran, reported, closed)
	}
	reported = s.report(r, out)
	if srv.name != sunabaName { // others are compared
		reported = nil
	}
	return r, errors.Join(closed, reported) // the report says more than how critest ended
}

func (s *settings) critestRun(ctx context.Context, v variant, socket, program, out string) error {
	log, err := os.Create(filepath.Join(out, "critest.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{
		"--runtime-endpoint=unix://" + socket, "--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=" + s.timeout.String(),
		"--ginkgo.json-report=" + filepath.Join(out, reportFile),
	}, v.args...)
	if s.again {
		args = append(args, "--ginkgo.flake-attempts=2")
	}
	for _, focus := range []string{v.focus, s.focus} {
		if focus != "" {
			args = append(args, "--ginkgo.focus="+focus)
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Dir = out
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("critest (see %s): %w", log.Name(), err)
	}
	return nil
}
