// Package scripts runs the scenarios that are lists of commands, with the real binaries and crictl:
// text scripts, and the manifests of examples/pods. Each has a node of its own and ends with a look
// at what is left on the machine.
package scripts

import (
	"os"
	"testing"

	"github.com/sunaba-project/sunaba/tests/stage"
)

var world stage.World

func TestMain(m *testing.M) { os.Exit(stage.Main(m, "scripts", "..", &world)) }
