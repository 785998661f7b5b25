// Package binaries gives tests the project's two binaries, as a release has them except for the
// version.
package binaries

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// The names of both.
const (
	Sunaba = "sunaba"
	Shim   = "containerd-shim-sunaba-v1"
)

// Tags are the build tags of both binaries, which the Makefile has too.
const Tags = "grpcnotrace,no_grpc,urfave_cli_no_template"

// LinkFlags are the linker's flags of both binaries, which the Makefile has too.
func LinkFlags() string {
	if runtime.GOARCH == "amd64" {
		return "-s -w -funcalign=16"
	}
	return "-s -w"
}

// Variable is the environment variable with the folder of both binaries where they have just been
// built of this tree: by `make test`, for all packages. Elsewhere they are built.
const Variable = "SUNABA_TEST_BINARIES"

// SharedVariable is the environment variable with a folder of what the packages of one `make test`
// make once: guests that are built, modules that are compiled. It is empty when the run starts and
// removed at its end, so that nothing of another tree is in it.
const SharedVariable = "SUNABA_TEST_MADE"

// SharedFolder is a folder of that one, or "" without the variable. Its first writer makes it.
func SharedFolder(name string) string {
	if folder := os.Getenv(SharedVariable); folder != "" {
		return filepath.Join(folder, name)
	}
	return ""
}

// module is the project's path, whose packages are built from any folder of it.
const module = "github.com/sunaba-project/sunaba"

// Provide puts binaries of these names into a folder. The working folder is one of the project's.
func Provide(folder string, names ...string) error {
	for _, name := range names {
		if err := provide(folder, name); err != nil {
			return err
		}
	}
	return nil
}

func provide(folder, name string) error {
	to := filepath.Join(folder, name)
	if built := os.Getenv(Variable); built != "" {
		// A copy: the folder is the test's own, and the next make writes to the other one.
		if err := copyProgram(filepath.Join(built, name), to); err != nil {
			return fmt.Errorf("take %s from $%s: %w", name, Variable, err)
		}
		return nil
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", Tags, "-ldflags="+LinkFlags()+" -X "+module+"/version.stamp=test", "-o", to, module+"/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", name, err, out)
	}
	return nil
}

func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
