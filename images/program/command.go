package program

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/regular"
)

// OpenEntrypoint opens the regular file that an image's command names, looked
// for as a shell in the image's working directory would.
func OpenEntrypoint(dir string, c ocispec.ImageConfig) (*os.File, error) {
	command := append(append([]string{}, c.Entrypoint...), c.Cmd...)
	if len(command) == 0 || command[0] == "" {
		return nil, fmt.Errorf("no command: %w", errdefs.ErrNotFound)
	}
	for _, name := range candidates(command[0], c) {
		f, err := regular.OpenIn(dir, name)
		if err == nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("command %q: %w", command[0], fs.ErrNotExist)
}

// candidates returns where a command may lie, in the order of search.
func candidates(command string, c ocispec.ImageConfig) []string {
	if path.IsAbs(command) {
		return []string{command}
	}
	out := []string{path.Join("/", c.WorkingDir, command)}
	if strings.Contains(command, "/") {
		return out
	}
	for _, e := range c.Env {
		if dirs, ok := strings.CutPrefix(e, "PATH="); ok {
			for d := range strings.SplitSeq(dirs, ":") {
				out = append(out, path.Join("/", d, command))
			}
		}
	}
	return out
}
