package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
)

// One cause is told once, without the words of its class, and codes of programs are apart from ours.
func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err       error
		signalled bool
		code      int
		text      string
	}{
		{nil, false, 0, ""},
		{usage.Exit(7), false, 7, ""},
		{usage.Failure{Code: 125, Err: usage.Exit(7)}, false, 7, ""},
		{usage.Exit(3), false, 3, ""},
		{usage.Exit(256), false, 255, ""},
		{usage.Exit(259), false, 3, ""},
		{usage.Exit(-1), false, 255, ""},
		{fmt.Errorf("image is empty: %w: %w", errdefs.ErrInvalidArgument, errdefs.ErrInvalidArgument), false, 1, "sunaba: image is empty\n"},
		{usage.Failure{Code: usage.Failed, Err: fmt.Errorf("no server: %w", errdefs.ErrUnavailable)}, false, 125, "sunaba: no server\n"},
		{fmt.Errorf("pull %q: %w", "a:1", context.Canceled), true, 130, "sunaba: pull \"a:1\": interrupted\n"},
		{usage.Failure{Code: usage.Failed, Err: fmt.Errorf("run pod: interrupted: %w", context.Canceled)}, true, 130, "sunaba: run pod: interrupted\n"},
		{fmt.Errorf("ask: %w", context.Canceled), false, 1, "sunaba: ask: context canceled\n"},
		{errors.New("other"), true, 1, "sunaba: other\n"},
	} {
		var errOut strings.Builder
		if code := exitCode(c.err, c.signalled, &errOut); code != c.code || errOut.String() != c.text {
			t.Errorf("%v: exit code %d, %q; want %d, %q", c.err, code, errOut.String(), c.code, c.text)
		}
	}
}
