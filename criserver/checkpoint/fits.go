package checkpoint

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// saved is what must be known of the specification of a checkpointed container.
type saved struct {
	Process *struct {
		Terminal bool       `json:"terminal"`
		Args     []string   `json:"args"`
		Cwd      string     `json:"cwd"`
		Env      []string   `json:"env"`
		User     specs.User `json:"user"`
	} `json:"process"`
	Mounts []struct {
		Destination string `json:"destination"`
	} `json:"mounts"`
}

// fits says whether a specification can take up the processes of another one: what they had mounted
// must be there, and, if strict, the program must be the same.
func fits(was saved, now []byte, strict bool) error {
	var is specs.Spec
	if err := json.Unmarshal(now, &is); err != nil {
		return err
	}
	have := map[string]bool{}
	for _, m := range is.Mounts {
		have[m.Destination] = true
	}
	for _, m := range was.Mounts {
		if !have[m.Destination] {
			return fmt.Errorf("the checkpoint has a mount at %q and the container has none: %w", m.Destination, errdefs.ErrInvalidArgument)
		}
	}
	if was.Process == nil || is.Process == nil {
		return fmt.Errorf("%s of the checkpoint has no process: %w", SpecFile, errdefs.ErrInvalidArgument)
	}
	if was.Process.Terminal != is.Process.Terminal {
		return fmt.Errorf("tty is %t and in the checkpoint %t: %w", is.Process.Terminal, was.Process.Terminal, errdefs.ErrInvalidArgument)
	}
	if !strict {
		return nil
	}
	for _, part := range []struct {
		name     string
		was, now any
	}{
		{"command", was.Process.Args, is.Process.Args},
		{"working directory", was.Process.Cwd, is.Process.Cwd},
		{"environment", was.Process.Env, is.Process.Env},
		{"user", was.Process.User, is.Process.User},
	} {
		if !reflect.DeepEqual(part.was, part.now) {
			return fmt.Errorf("%s is %v and in the checkpoint %v: %w", part.name, part.now, part.was, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
