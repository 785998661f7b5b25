package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sunaba-project/sunaba/tests/binaries"
)

// replaced are the packages through which the program has an agent and its commands, with what is
// built in their place: files of this folder that are no packages.
var replaced = map[string]string{
	"cmd/sunaba/podagent": "tests/bench/agent/without/podagent.go.txt",
	"cmd/sunaba/run":      "tests/bench/agent/without/run.go.txt",
	"cmd/sunaba/podcmd":   "tests/bench/agent/without/podcmd.go.txt",
}

// size compares the program with one that has neither an agent nor its commands.
func (b *bench) size(ctx context.Context) error {
	overlay, err := b.overlay()
	if err != nil {
		return err
	}
	var sizes []float64
	for i, more := range [][]string{nil, {"-overlay", overlay}} {
		program := filepath.Join(b.dir, fmt.Sprint("program", i))
		args := append([]string{"build", "-trimpath", "-tags", binaries.Tags, "-ldflags=-s -w", "-o", program}, more...)
		build := exec.CommandContext(ctx, "go", append(args, "./cmd/sunaba")...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said)
		}
		info, err := os.Stat(program)
		if err != nil {
			return err
		}
		sizes = append(sizes, float64(info.Size())/1e6)
	}
	more := sizes[0] - sizes[1]
	b.table.Add("program, MB, with an agent and without", fmt.Sprintf("%.2f", sizes[0]), fmt.Sprintf("%.2f", sizes[1]), fmt.Sprintf("+%.2f", more), "≤ +2.5", more <= 2.5)
	return nil
}

// overlay writes the file that has the go command replace packages.
func (b *bench) overlay() (string, error) {
	files := map[string]string{}
	for dir, with := range replaced {
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(sources) == 0 {
			return "", fmt.Errorf("%s: no source files (run it in the project's folder): %v", dir, err)
		}
		for _, path := range sources {
			if path, err = filepath.Abs(path); err != nil {
				return "", err
			}
			files[path] = ""
		}
		path, err := filepath.Abs(filepath.Join(dir, "without.go"))
		if err != nil {
			return "", err
		}
		if files[path], err = filepath.Abs(with); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}
