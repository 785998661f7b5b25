package enginetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/bundle"
)

// busybox is Debian's package busybox-static.
const busybox = "/bin/busybox"

// BusyboxRoot makes a root filesystem that holds a shell.
func BusyboxRoot(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"bin", "proc", "dev", "sys", "tmp", "etc"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatalf("a static busybox is needed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "cat", "sleep", "env", "echo", "true"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// BusyboxProcess is a program of the suite as a process in a BusyboxRoot.
func BusyboxProcess(p Program) *specs.Process {
	script := map[Kind]string{
		Exit:  fmt.Sprintf("exit %d", p.Code),
		Echo:  `printf %s "$TEXT"`,
		Sleep: "echo ready; exec sleep 1000000",
		Lines: fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done", p.N),
		Env:   `echo "$` + p.Text + `"`,
		Cat:   "exec cat",
	}[p.Kind]
	if p.Kind == Cat && p.Code != 0 {
		script = fmt.Sprintf("cat; exit %d", p.Code)
	}
	args := []string{"/bin/sh", "-c", script}
	if p.Kind == Missing {
		args = []string{"/bin/nothing-here"}
	}
	return &specs.Process{
		Args: args, Cwd: "/",
		Env: append([]string{"PATH=/bin", "TEXT=" + p.Text}, p.Env...),
	}
}

// BusyboxSpec is a minimal OCI configuration for a container with this id.
func BusyboxSpec(id, root string, process *specs.Process) *specs.Spec {
	return &specs.Spec{
		Version: "1.0.2",
		Process: process,
		Root:    &specs.Root{Path: root},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		},
		Annotations: annotation.Facts{}.Annotations(),
		Linux: &specs.Linux{
			CgroupsPath: CgroupParent + "/" + id,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
			},
		},
	}
}

// WriteBundle writes a bundle directory, named by the id below a directory of the test, and returns
// it.
func WriteBundle(t testing.TB, dir, id string, spec *specs.Spec) string {
	t.Helper()
	path := filepath.Join(dir, id)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, bundle.ConfigName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// BusyboxBundle makes a Harness's bundle for an OCI runtime over a shared root.
func BusyboxBundle(root string) func(t *testing.T, id string, p Program) *shim.Bundle {
	return func(t *testing.T, id string, p Program) *shim.Bundle {
		t.Helper()
		spec := BusyboxSpec(id, root, BusyboxProcess(p))
		return &shim.Bundle{ID: id, Namespace: "test", Rootfs: root, Spec: spec, Path: WriteBundle(t, t.TempDir(), id, spec)}
	}
}
