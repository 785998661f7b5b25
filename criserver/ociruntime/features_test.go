package ociruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script is a program that stands for a runtime.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProbe(t *testing.T) {
	dir := t.TempDir()
	version := func(text string) string { return "[ $1 = --version ] || exit 1; echo '" + text + "'" }
	features := func(text string) string {
		return "case $1 in --version) echo runtime version 1 ;; *) echo '" + text + "' ;; esac"
	}
	for name, r := range map[string]struct {
		script  string
		version string
		want    Features
	}{
		"lists it":       {features(`{"ociVersionMin":"1.0.0","mountOptions":["ro","rro"]}`), "runtime 1", Features{RecursiveReadOnly: true}},
		"lists others":   {features(`{"ociVersionMin":"1.0.0","mountOptions":["ro"]}`), "runtime 1", Features{}},
		"runc":           {features(`{"annotations":{"org.opencontainers.runc.version":"1.1.5"}}`), "runtime 1", Features{OneStep: true}},
		"newer crun":     {features(`{"annotations":{"run.oci.crun.version":"1.15"}}`), "runtime 1", Features{}},
		"says nonsense":  {"echo nonsense", "nonsense", Features{}},
		"old crun":       {version("crun version 1.3"), "crun 1.3", Features{}},
		"crun":           {version("crun version 1.8.1\ncommit: x"), "crun 1.8.1", Features{RecursiveReadOnly: true}},
		"old runc":       {version("runc version 1.0.3"), "runc 1.0.3", Features{}},
		"crun of no age": {version("crun version UNKNOWN"), "crun UNKNOWN", Features{}},
		"silent":         {"exit 1", "", Features{}},
		"leaves a child": {"sleep 3 &\n" + features(`{"mountOptions":["rro"]}`), "runtime 1", Features{RecursiveReadOnly: true}},
	} {
		path := script(t, filepath.Join(dir, strings.ReplaceAll(name, " ", "-")), r.script)
		got := Probe(t.Context(), path)
		if want := (Report{Binary: path, Path: path, Version: r.version, Features: r.want}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestProbeOfWhatCannotRun(t *testing.T) {
	dir := t.TempDir()
	text, foreign := filepath.Join(dir, "text"), filepath.Join(dir, "foreign")
	for path, content := range map[string]string{text: "no program", foreign: "\x7fELF\x02\x01\x01\x00"} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(text, 0o644); err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[string]string{
		"no-such-runtime": "executable file not found in $PATH", filepath.Join(dir, "none"): "no such file or directory",
		text: "permission denied", foreign: "exec format error", dir: "is a directory",
	} {
		r := Probe(t.Context(), binary)
		if !r.Missing || !strings.Contains(r.Problem, want) {
			t.Errorf("%s: %+v, want %q", binary, r, want)
		}
		said := r.Text("h")
		for _, part := range []string{binary, `of handler "h"`, want, "install it, or set handlers.h.binary"} {
			if !strings.Contains(said, part) {
				t.Errorf("%s: %q lacks %q", binary, said, part)
			}
		}
	}
}
