package runc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"
)

// CRIU's log ends with the errors that led to its failure, from the cause outwards.
func TestCriuSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dump.log")
	if said := criuSaid(file); said != "" {
		t.Errorf("without a log: %q", said)
	}
	log := "(00.1) Error (criu/util.c:1): rlimit: not permitted\n(00.2) Locking\nError (criu/util.c:642): execvp failed\n" +
		"(00.3) Error (criu/net.c:2): net: Locking failed\n(00.4) Error (criu/cr-dump.c:3): Dump failed with -1\n(00.5) Error (criu/cr-dump.c:4): Dumping FAILED.\n"
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := criuSaid(file); said != "execvp failed; net: Locking failed; Dump failed with -1" {
		t.Errorf("%q", said)
	}
	c := &container{id: "x", runtime: &runc.Runc{Command: "crun"}}
	if err := c.criuError(t.Context(), errors.New("crun: exit status 1: unknown command checkpoint"), file); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "crun was built without") {
		t.Errorf("%v", err)
	}
	err := c.criuError(t.Context(), errors.New("runc has failed\nquoting its log"), file)
	if !errdefs.IsFailedPrecondition(err) || !strings.HasPrefix(err.Error(), "runc has failed: criu: execvp") {
		t.Errorf("%v", err)
	}
}
