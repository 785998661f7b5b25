package network

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// insideEnv marks the process that runs the tests.
const insideEnv = "SUNABA_TEST_NETWORK_INSIDE"

// TestMain runs the tests in a network and mount namespace of their own: whatever they make or
// leave, the machine's own links, routes, rules, sysctls and mounts are not touched.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "the tests of this package need root")
		os.Exit(1)
	}
	if os.Getenv(insideEnv) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0 {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(cmd.ProcessState.ExitCode())
	}
}
