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
	"cmd/sunaba/podagent":   "tests/bench/agent/without/podagent.go.txt",
	"cmd/sunaba/run":        "tests/bench/agent/without/run.go.txt",
	"cmd/sunaba/podcmd":     "tests/bench/agent/without/podcmd.go.txt",
	"cmd/sunaba/statuspage": "tests/bench/agent/without/statuspage.go.txt",
	"pods/page":             "tests/bench/agent/without/page.go.txt",
}

// size compares the program with one that has neither an agent nor its commands.
func (b *bench) size(ctx context.Context) error {
	with, without, err := sizes(ctx, b.dir)
	if err != nil {
		return err
	}
	more := with - without
	b.table.Add("program, MB, with an agent and without", fmt.Sprintf("%.2f", with), fmt.Sprintf("%.2f", without), fmt.Sprintf("+%.2f", more), "≤ +2.5", more <= 2.5)
	return nil
}

// sizes makes the program with an agent and its commands, and without, in folders of this one, and
// returns their sizes in MB.
func sizes(ctx context.Context, dir string) (with, without float64, err error) {
	overlay, err := writeOverlay(dir)
	if err != nil {
		return 0, 0, err
	}
	whole, less := filepath.Join(dir, "with"), filepath.Join(dir, "without")
	if err := binaries.Provide(whole, binaries.Sunaba); err != nil {
		return 0, 0, err
	}
	args := []string{"build", "-trimpath", "-tags", binaries.Tags, "-ldflags=" + binaries.LinkFlags(), "-o", less + "/", "-overlay", overlay, "./cmd/sunaba"}
	build := exec.CommandContext(ctx, "go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	var both [2]float64
	for i, folder := range []string{whole, less} {
		info, err := os.Stat(filepath.Join(folder, binaries.Sunaba))
		if err != nil {
			return 0, 0, err
		}
		both[i] = float64(info.Size()) / 1e6
	}
	return both[0], both[1], nil
}

// writeOverlay writes the file that has the go command replace packages.
func writeOverlay(dir string) (string, error) {
	files := map[string]string{}
	for folder, with := range replaced {
		sources, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(sources) == 0 {
			return "", fmt.Errorf("%s: no source files (run it in the project's folder): %v", folder, err)
		}
		for _, path := range sources {
			if path, err = filepath.Abs(path); err != nil {
				return "", err
			}
			files[path] = ""
		}
		path, err := filepath.Abs(filepath.Join(folder, "without.go"))
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
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}
