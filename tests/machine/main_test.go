// Package machine has the tests that need a machine of their own: they shut it down, cut its power
// and use up its memory. tests/v2 gives each of them one.
package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/oci"
	"github.com/sunaba-project/sunaba/tests/suites"
)

// share is the folder that the machine shares with its host.
var share = os.Getenv(suites.ShareVariable)

func TestMain(m *testing.M) {
	if share == "" {
		fmt.Println("these tests shut the machine down and use up its memory. Run them in one of their own: make v2-test V2_FLAGS='-run ^machine'")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bin is where the unit of tests has the binaries, which are there in every boot.
const bin = "/usr/local/bin"

// build builds the binaries into a folder, and pushes the images of all pods: busybox and a guest.
func build(t *testing.T, folder string) (busybox, guest string) {
	t.Helper()
	ctx := context.Background()
	registry, err := oci.Serve("127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { registry.Close() })
	check(t, binaries.Provide(folder, binaries.Sunaba, binaries.Shim))
	image, err := oci.Busybox(oci.Host(), v1.Config{})
	check(t, err)
	busybox, err = registry.Push(ctx, "busybox:1", image)
	check(t, err)
	image, err = oci.PackedC(ctx, "../criwasm/testdata/guest.c", oci.Dir("tmp", 0o1777))
	check(t, err)
	guest, err = registry.Push(ctx, "guest:1", image)
	check(t, err)
	return busybox, guest
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a command, which must succeed, and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(name, args...)
	check(t, err)
	return out
}

// crictl asks the server of the default socket.
func crictl(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, "../tools/bin/crictl", append([]string{"--runtime-endpoint=unix:///run/sunaba/sunaba.sock", "--timeout=30s"}, args...)...)
}

// try runs a command. What it prints on standard error is part of the error.
func try(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %q: %w: %s%s", name, args, err, said.Bytes(), out)
	}
	return string(bytes.TrimSpace(out)), err
}

// combined runs a command and returns all that it prints.
func combined(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// journald is what a unit has said in this boot.
func journald(unit string) string {
	out, err := try("journalctl", "-b", "--no-pager", "-o", "cat", "-n", "60", "-u", unit)
	return errors.Join(errors.New(out), err).Error()
}
