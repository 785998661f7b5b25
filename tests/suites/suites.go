// Package suites has the project's suites of tests as commands for a machine that is not the one
// that builds them: tests/vm runs them in an emulated machine, tests/v2 in User-Mode Linux. It
// builds them, counts what they say, and reports.
package suites

import "time"

// Unit is the systemd unit that runs suites in a machine.
const Unit = "sunaba-suites.service"

// Suite is one command for a machine.
type Suite struct {
	Name    string        // unique; also the name of its log
	Driver  string        // cgroup driver that it is for, "" where it makes no difference
	Dir     string        // working directory
	Command []string      // program and arguments
	Env     []string      // on top of the machine's
	Timeout time.Duration // after which it is killed
	Keep    []string      // files to keep after it, as glob patterns
	Beside  bool          // others run on the machine meanwhile: what is left on it may be theirs
}

// End is how a suite ended.
type End struct {
	Suite    string
	Code     int           // exit code; -1 when it failed to start or was killed
	Why      string        // "" when it simply exited
	Took     time.Duration // by the machine's clock
	LeftOver []string      // what is on the machine that was not there before it
}
