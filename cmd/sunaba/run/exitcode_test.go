package run

import "testing"

// Programs that were not started have docker's exit codes, by what runc, crun and the daemon say.
func TestStartCode(t *testing.T) {
	for message, want := range map[string]int{
		`runc run failed: unable to start container process: exec: "nosuch": executable file not found in PATH "/bin"`:                 127,
		`runc run failed: unable to start container process: exec: "/nosuch": stat /nosuch: no such file or directory`:                 127,
		"crun: executable file `nosuch` not found in $PATH: No such file or directory":                                                 127,
		`runc run failed: unable to start container process: exec: "/etc/passwd": permission denied`:                                   126,
		`runc run failed: unable to start container process: exec /x: exec format error`:                                               126,
		`command "/bin": "/bin" is a directory`:                                                                                        126,
		`runc run failed: unable to start container process: error during container init: error mounting "/a" to rootfs: not a folder`: 125,
	} {
		if got := startCode(message); got != want {
			t.Errorf("%s: exit code %d, want %d", message, got, want)
		}
	}
}
