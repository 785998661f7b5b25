package checkpoint

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/containerd/errdefs"
)

// Ready asks CRIU whether it can work on this machine, with its kernel and this server's rights.
//
// # Errors
//
// ErrFailedPrecondition: CRIU is not installed, or what it says is missing.
func Ready(ctx context.Context) error {
	path, err := exec.LookPath("criu")
	if err != nil {
		return fmt.Errorf("criu is not installed on this node (looked for it in PATH): %w", errdefs.ErrFailedPrecondition)
	}
	said, err := exec.CommandContext(ctx, path, "check").CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("ask criu whether it works here: %w", ctx.Err())
	}
	return fmt.Errorf("criu does not work on this node (criu check): %s: %w", lastErrors(string(said), err), errdefs.ErrFailedPrecondition)
}

// lastErrors are the last errors in what CRIU said, without their places in its source: the cause
// comes before what followed from it.
func lastErrors(said string, err error) string {
	var errs []string
	for line := range strings.Lines(said) {
		_, text, found := strings.Cut(line, "Error (")
		if _, text, ok := strings.Cut(text, "): "); found && ok && !strings.HasPrefix(text, "exited, ") {
			errs = append(errs, strings.TrimSpace(text))
		}
	}
	if len(errs) == 0 {
		return err.Error()
	}
	return strings.Join(errs[max(0, len(errs)-3):], "; ")
}
