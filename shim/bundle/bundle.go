// Package bundle knows the files a shim keeps in a bundle directory beside OCI's own config.json:
// enough to learn how a container ended and to clean up after it when its shim is dead.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/shim/api"
)

// Names of files in a bundle directory.
const (
	ConfigName = "config.json" // OCI's
	RootfsName = "rootfs"      // mount point of the root filesystem
	ExitName   = "exit.json"   // how init ended; there once the exit is true, before it is announced
	TaskName   = "task.json"   // which engine and runtime made the container, and its cgroup
	PidName    = "init.pid"    // init's host pid
)

// Task is what cleaning up needs to know. It is written before the engine makes anything.
type Task struct {
	Engine        string `json:"engine"`
	Binary        string `json:"binary,omitempty"` // OCI runtime
	Root          string `json:"root,omitempty"`   // its --root
	SystemdCgroup bool   `json:"systemdCgroup,omitempty"`
	Cgroup        string `json:"cgroup,omitempty"` // path below the hierarchies' mount points

	// What a successor of the shim needs to know besides, where there will be one.
	Stage     Stage     `json:"stage,omitempty"`
	Request   []byte    `json:"request,omitempty"`  // the Task API's CreateTaskRequest
	PID       int       `json:"pid,omitempty"`      // init's; 0 = it is not there yet
	StartedAt time.Time `json:"startedAt,omitzero"` // when init was released to run
	Paused    bool      `json:"paused,omitempty"`   // or is about to be
	Told      []int     `json:"told,omitempty"`     // signals that init was sent, each once
}

// taskVersion is the format version of TaskName.
const taskVersion = 1

// taskRecord is what the file holds.
type taskRecord struct {
	Version int `json:"version"`
	Task
}

// Stage is how far a container has come.
type Stage string

// The stages. Until its creation is answered a container has none, and is taken back if the shim
// dies.
const (
	Created  Stage = "created"
	Starting Stage = "starting" // maybe started
	Started  Stage = "started"
)

// ReadSpec reads the OCI configuration. ErrNotFound without one.
func ReadSpec(dir string) (*specs.Spec, error) {
	var spec specs.Spec
	if err := readJSON(filepath.Join(dir, ConfigName), &spec); err != nil {
		return nil, err
	}
	return &spec, nil
}

// WarmUp decodes a configuration like those to come: the decoder keeps what it learns of their
// types, which takes longer than to decode one.
func WarmUp() {
	var spec specs.Spec
	_ = json.Unmarshal([]byte(`{"ociVersion":"1.0.2","process":{"user":{"uid":0,"gid":0,"additionalGids":[0]},"args":["/a"],"env":["A=b"],
		"cwd":"/","capabilities":{"bounding":["CAP_CHOWN"]},"rlimits":[{"type":"RLIMIT_NOFILE","hard":1,"soft":1}],"noNewPrivileges":true,
		"oomScoreAdj":0},"root":{"path":"rootfs"},"hostname":"h","mounts":[{"destination":"/p","type":"proc","source":"p","options":["ro"]}],
		"annotations":{"a":"b"},"linux":{"resources":{"devices":[{"allow":false,"access":"rwm"}],"memory":{"limit":1},
		"cpu":{"shares":2,"quota":1,"period":1},"pids":{"limit":1}},"cgroupsPath":"/a","namespaces":[{"type":"pid"}],
		"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","architectures":["SCMP_ARCH_X86_64"],"syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW",
		"args":[{"index":0,"value":0,"op":"SCMP_CMP_EQ"}]}]},"maskedPaths":["/p"],"readonlyPaths":["/p"]}}`), &spec)
}

// Annotate sets one annotation of the OCI configuration.
func Annotate(dir, key, value string) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	if spec.Annotations == nil {
		spec.Annotations = map[string]string{}
	}
	spec.Annotations[key] = value
	return replaceJSON(dir, ConfigName, spec)
}

// WriteTask records the container's engine and cgroup. How an earlier container in this bundle
// ended is forgotten.
func WriteTask(dir string, t Task) error {
	if err := ForgetExit(dir); err != nil {
		return err
	}
	return replaceJSON(dir, TaskName, taskRecord{taskVersion, t})
}

// UpdateTask changes what is recorded of the same container.
func UpdateTask(dir string, change func(*Task)) error {
	t, err := ReadTask(dir)
	if err != nil {
		return err
	}
	change(&t)
	return replaceJSON(dir, TaskName, taskRecord{taskVersion, t})
}

// ReadTask returns what WriteTask recorded.
//
// # Errors
//
// ErrNotFound when the shim did not come so far, ErrFailedPrecondition for another format version.
func ReadTask(dir string) (Task, error) {
	var r taskRecord
	path := filepath.Join(dir, TaskName)
	if err := readJSON(path, &r); err != nil {
		return Task{}, err
	}
	if r.Version != taskVersion {
		return Task{}, fmt.Errorf("read %q: it has format version %d, and this release reads %d: end the container's processes, remove the file and retry: %w",
			path, r.Version, taskVersion, errdefs.ErrFailedPrecondition)
	}
	return r.Task, nil
}

// WritePid records init's pid.
func WritePid(dir string, pid int) error {
	return durable.Replace(filepath.Join(dir, PidName), []byte(strconv.Itoa(pid)), 0o600)
}

// ReadPid returns the recorded pid of init, 0 without a record.
func ReadPid(dir string) int { return PidIn(filepath.Join(dir, PidName)) }

// PidIn returns the pid that a file holds, 0 without one.
func PidIn(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}

// WriteExit keeps how init ended so that a power cut does not lose it.
func WriteExit(dir string, e api.Exit) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode %s: %w", ExitName, err)
	}
	return durable.Write(filepath.Join(dir, ExitName), data, 0o600)
}

// ReadExit returns what WriteExit kept, false without it.
func ReadExit(dir string) (api.Exit, bool) {
	var e api.Exit
	if err := readJSON(filepath.Join(dir, ExitName), &e); err != nil {
		return api.Exit{}, false
	}
	return e, true
}

// ForgetExit takes back WriteExit: the container that ended never ran.
func ForgetExit(dir string) error { return durable.Remove(dir, ExitName) }

// Forget removes the shim's own files, also half-written ones, but not how the container ended, nor
// what the shim's client may be writing beside them.
func Forget(dir string) error {
	return errors.Join(durable.Sweep(dir, TaskName, PidName, ExitName), durable.Remove(dir, TaskName, PidName))
}

// replaceJSON writes a file of a bundle directory in place of the one that is there.
func replaceJSON(dir, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return durable.Replace(filepath.Join(dir, name), data, 0o600)
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read %q: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %q: %w: %w", path, err, errdefs.ErrInvalidArgument)
	}
	return nil
}
