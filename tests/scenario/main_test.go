// Package scenario runs whole pods: the real binaries, real runc and crun, real images from a
// registry on loopback, and a CRI client where the kubelet would be. Every scenario has a daemon of
// its own and ends with a look at what is left on the machine. Scenarios that are lists of commands
// are in package scripts.
package scenario

import (
	"os"
	"testing"

	"github.com/sunaba-project/sunaba/tests/stage"
)

var world stage.World

func TestMain(m *testing.M) { os.Exit(stage.Main(m, "scenario", "..", &world, nil)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
