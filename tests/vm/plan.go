package main

import (
	"time"

	"github.com/sunaba-project/sunaba/tests/suites"
	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

// A machine of this command is told what to do by a plan, in a folder that it sees read-only, and
// answers with events, one JSON value a line, through a virtio serial port. Nothing else leaves it,
// but its console.

const (
	agentTag  = "sunaba"                        // the 9p share of the folder with the agent and its plan
	agentDir  = "/host"                         // where the machine mounts it
	agentFile = "agent"                         // this command's own binary
	planFile  = "plan.json"                     // what it is to do
	portName  = "sunaba.events"                 // the serial port
	port      = "/dev/virtio-ports/" + portName // the same, inside
	stampFile = "stamp"                         // what the root file system was made of
	scratch   = "/var/lib/sunaba-vm"            // folder of the machine for what is only needed there
	boots     = suites.Unit                     // the unit that runs the agent
	needsDisk = int64(12) << 30                 // size of the root file system, in bytes; the file is sparse
	debian    = "bookworm"                      // the release, whose packages the tests are made for
	memory    = 4096                            // of the machine, in MiB
	cpus      = 2                               // of the machine
	shares    = "trans=virtio,version=9p2000.L,ro,cache=loose,msize=1048576"
)

// plan is what a machine is to do.
type plan struct {
	Shares []share  // folders of the host, read-only
	Over   []string // those among them that are to look writable: what is written stays in the machine
	Env    []string // of every suite
	Suites []suites.Suite
}

// share is a folder of the host that the machine sees at the same path.
type share struct{ Tag, Path string }

// event is one line of what a machine says. Exactly one of its parts is set.
type event struct {
	Fact  *suites.Fact `json:",omitempty"` // about the machine, before the first suite
	Begin string       `json:",omitempty"` // a suite starts
	Line  *line        `json:",omitempty"` // it said something
	File  *kept        `json:",omitempty"` // one of the files it keeps
	Build *builds.Job  `json:",omitempty"` // it wants something compiled
	End   *suites.End  `json:",omitempty"` // it ended
	Done  bool         `json:",omitempty"` // all suites ended
	At    time.Time    // the machine's clock
}

type line struct{ Suite, Text string }

type kept struct {
	Suite, Name string
	Data        []byte
}
