package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Tags are the build tags of both binaries, which the Makefile has too.
const Tags = "grpcnotrace,no_grpc,urfave_cli_no_template"

// module is the project's path, whose packages are built from any folder of it.
const module = "github.com/sunaba-project/sunaba"

// Build builds both binaries into a folder as a release has them, except for the version. The
// working folder is one of the project's.
func Build(bin string) error {
	for _, name := range []string{"sunaba", "containerd-shim-sunaba-v1"} {
		if err := BuildOne(bin, name); err != nil {
			return err
		}
	}
	return nil
}

// BuildOne builds the binary of that name into a folder.
func BuildOne(bin, name string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", Tags,
		"-ldflags=-s -w -X "+module+"/version.stamp=test", "-o", filepath.Join(bin, name), module+"/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", name, err, out)
	}
	return nil
}
