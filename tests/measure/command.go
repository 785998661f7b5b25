package measure

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Prepare makes the given paths absolute and returns a new folder, which processes that are not
// root may pass. why is what needs root.
func Prepare(name, why string, paths ...*string) (dir string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("not root: " + why)
	}
	for _, p := range paths {
		if *p, err = filepath.Abs(*p); err != nil {
			return "", err
		}
	}
	if dir, err = os.MkdirTemp("", "sunaba-bench-"+name+"-"); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// Wait lets time pass.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Median is the one in the middle, the zero value of none.
func Median[T cmp.Ordered](values []T) (median T) {
	if len(values) == 0 {
		return median
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
