package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// packages lists the packages of the Go module in a directory that have tests for guests. What the
// module requires must have been downloaded.
func (s *suite) packages(dir string) ([]*module, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}", "./...")
	cmd.Env, cmd.Dir = guestEnvironment(), dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages in %s: %w", dir, err)
	}
	var all []*module
	for line := range strings.Lines(string(out)) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path == "" {
			continue
		}
		all = append(all, &module{
			name: "package/" + path, tree: dir,
			build: func(ctx context.Context, out string) error {
				return s.golang(ctx, folder, "test", "-c", "-o", out, ".")
			},
			programs: []program{{args: testArgs(""), dir: folder, tests: true}},
		})
	}
	return all, nil
}

// guestEnvironment is that of the go command for guests. Nothing is downloaded.
func guestEnvironment() []string {
	return append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
}
