package network

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A change of CNI's configurations and plugins is told at once, also of folders that come later;
// what is beside them is not.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	conf, bin := filepath.Join(dir, "cni", "net.d"), filepath.Join(dir, "bin")
	must(t, os.Mkdir(bin, 0o700))
	s := &switching{confDir: conf, cni: &cniNetwork{binDirs: []string{bin}}}
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- s.Watch(ctx, func() { told <- struct{}{} }) }()
	next := func(what string) {
		t.Helper()
		select {
		case <-told:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is not told of", what)
		}
	}
	next("the start")
	file := filepath.Join(conf, "10-a.conflist")
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"the folder above", func() error { return os.Mkdir(filepath.Dir(conf), 0o700) }},
		{"the folder", func() error { return os.Mkdir(conf, 0o700) }},
		{"a configuration", func() error { return os.WriteFile(file, []byte("{}"), 0o600) }},
		{"a change", func() error { return os.WriteFile(file, []byte("{ }"), 0o600) }},
		{"a folder of plugins", func() error { return os.Mkdir(filepath.Join(conf, "a"), 0o700) }},
		{"a plugin's configuration", func() error { return os.WriteFile(filepath.Join(conf, "a", "1.conf"), nil, 0o600) }},
		{"another name", func() error { return os.Rename(file, filepath.Join(conf, "b.conflist")) }},
		{"a plugin", func() error { return os.WriteFile(filepath.Join(bin, "bridge"), nil, 0o600) }},
		{"a plugin that can be executed", func() error { return os.Chmod(filepath.Join(bin, "bridge"), 0o700) }},
		{"a removal", func() error { return os.Remove(filepath.Join(bin, "bridge")) }},
		{"the removal of all", func() error { return os.RemoveAll(conf) }},
		{"the folder again", func() error { return os.Mkdir(conf, 0o700) }},
	} {
		must(t, step.do())
		next(step.what)
		quiet(told)
	}
	must(t, os.WriteFile(filepath.Join(dir, "cni", "other"), nil, 0o600))
	select {
	case <-told:
		t.Error("a file beside the folder is told of")
	case <-time.After(20 * burst):
	}
	cancel()
	must(t, <-ended)
}

// quiet waits until nothing more is told of one step, which may be several events.
func quiet(told <-chan struct{}) {
	for {
		select {
		case <-told:
		case <-time.After(15 * burst):
			return
		}
	}
}
