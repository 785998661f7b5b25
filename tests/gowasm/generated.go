package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/sunaba-project/sunaba/tests/gowasm/generate"
)

// generated is the program of a seed.
func (s *suite) generated(seed uint64) *module {
	m := &module{name: fmt.Sprintf("generated/%d", seed), programs: []program{{args: []string{"test"}, dir: "/"}}}
	m.source = generate.Program(seed)
	m.build = func(ctx context.Context, out string) error {
		file := filepath.Join(filepath.Dir(out), "main.go")
		if err := writeFile(file, []byte(m.source)); err != nil {
			return err
		}
		return s.golang(ctx, filepath.Dir(out), "build", "-trimpath", "-o", out, file)
	}
	return m
}
