package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// ready is the node's RuntimeReady, and what it tells of its handlers.
func (m *machine) ready() (condition *runtime.RuntimeCondition, info string) {
	m.t.Helper()
	var answer *runtime.StatusResponse
	var err error
	node.Within(node.Patience, func() bool {
		answer, err = m.Status(m.t.Context(), &runtime.StatusRequest{Verbose: true}, grpc.WaitForReady(true))
		return grpcstatus.Code(err) != codes.Unavailable // until it has been started
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, c := range answer.GetStatus().GetConditions() {
		if c.GetType() == runtime.RuntimeReady {
			return c, answer.GetInfo()["config"]
		}
	}
	m.t.Fatal("there is no RuntimeReady")
	return nil, ""
}

// A handler whose runtime is missing, or makes no containers, is named where people look, and its
// pods hear what helps. When its runtime comes, no restart is needed.
func TestHandlerWithoutItsRuntime(t *testing.T) {
	dir := t.TempDir()
	later, broken := filepath.Join(dir, "later"), filepath.Join(dir, "broken")
	runc := must(exec.LookPath("runc"))
	script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *\" create \"*) echo 'no containers today' >&2; exit 1 ;; esac\nexec %s \"$@\"\n", runc)
	if err := os.WriteFile(broken, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m := start(t, fmt.Sprintf("[handlers.later]\ntype = \"oci\"\nbinary = %q\n[handlers.broken]\ntype = \"oci\"\nbinary = %q\n", later, broken))
	tells := func(what string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(what, part) {
				t.Errorf("%q is not in %s", part, what)
			}
		}
	}
	helps := fmt.Sprintf("OCI runtime %q of handler \"later\" cannot be used: stat %s: no such file or directory: install it, or set handlers.later.binary", later, later)
	cannot := fmt.Sprintf("OCI runtime %q of handler \"broken\" makes no container here: no containers today", broken)
	if !node.Within(node.Patience, func() bool { c, _ := m.ready(); return strings.Contains(c.GetMessage(), "no containers today") }) {
		t.Error("the trial of a runtime that makes no containers is not told of")
	}
	c, info := m.ready()
	if !c.GetStatus() || c.GetReason() != "HandlersNotReady" {
		t.Errorf("%v", c)
	}
	tells(c.GetMessage(), helps, cannot)
	tells(info, "no containers today", "no such file or directory", `"path":"`+runc+`"`, `"version":"runc `)
	tells(m.DaemonLog(), "level=WARN", "handlers.later.binary", "no containers today")
	_, err := m.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: m.podConfig("refused"), RuntimeHandler: "later"})
	if grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("a pod without its runtime: %v", err)
	}
	tells(fmt.Sprint(err), `run pod "refused"`, helps)
	code, out, _ := m.Sunaba("runtimeclass", "list", "--socket", m.Socket)
	if code != 1 {
		t.Errorf("the list ends with %d", code)
	}
	tells(out, "! "+helps, "! "+cannot, "("+runc+")")

	if err := os.Symlink(runc, later); err != nil {
		t.Fatal(err)
	}
	m.run("later").remove()
	if c, _ := m.ready(); strings.Contains(c.GetMessage(), later) {
		t.Errorf("installed: %v", c)
	}
}

// Without the default handler's runtime the node takes no pods, and says why; until it comes.
func TestDefaultHandlerWithoutItsRuntime(t *testing.T) {
	m := start(t)
	if err := m.SignalDaemon(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(m.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	runc := filepath.Join(t.TempDir(), "runc")
	changed := strings.Replace(string(config), `binary = "runc"`, fmt.Sprintf("binary = %q", runc), 1)
	if err := os.WriteFile(m.ConfigFile, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Launch(); err != nil {
		t.Fatal(err)
	}
	c, _ := m.ready()
	if c.GetStatus() || c.GetReason() != "OCIRuntimeMissing" || !strings.Contains(c.GetMessage(), "install it, or set handlers.runc.binary") {
		t.Errorf("%v", c)
	}
	if err := os.Symlink(must(exec.LookPath("runc")), runc); err != nil {
		t.Fatal(err)
	}
	if c, _ := m.ready(); !c.GetStatus() {
		t.Errorf("installed: %v", c)
	}
	if err := m.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.run("runc").remove()
}
