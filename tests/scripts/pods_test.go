package scripts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/stage"
)

// The scripts of testdata/pods run pods from manifests, without a kubelet, with the commands that
// people use. $MANIFESTS is the folder of manifests. Besides testscript's commands there are
//
//	daemon kill, daemon start: end the server with SIGKILL, and start it again
func TestPodScripts(t *testing.T) {
	names := named(podScripts)
	if len(names) == 0 {
		t.Fatal("no scripts")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m := startPods(t)
			testscript.Run(t, testscript.Params{
				Files: []string{filepath.Join("testdata/pods", name+".txtar")},
				Setup: func(env *testscript.Env) error {
					env.Setenv("MANIFESTS", m.manifests())
					env.Setenv("POD_LOGS", m.podLogs())
					return environment(m.Machine, env)
				},
				Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"daemon": m.daemonCommand},
			})
		})
	}
}

func (m pods) manifests() string { return filepath.Join(m.Options.Dir, "manifests") }
func (m pods) podLogs() string   { return filepath.Join(m.Options.Dir, "pod-logs") }

// pods is a node that runs the pods of a folder of manifests.
type pods struct{ stage.Machine }

// startPods starts a node that runs the pods of a folder of manifests.
func startPods(t *testing.T) pods {
	t.Helper()
	return startPodsIn(t, world.NodeDir(t), "")
}

// startPodsIn starts one in a folder. more are tables of [pods].
func startPodsIn(t *testing.T, dir, more string) pods {
	t.Helper()
	for _, name := range []string{"manifests", "pod-logs"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := fmt.Sprintf("[pods]\nmanifests = [%q]\nlogs = %q\nnode_name = \"till-4\"\ncrash_loop_max = \"1s\"\n"+
		"shutdown_grace = \"5s\"\nshutdown_grace_critical = \"3s\"\nlogind_drop_in = false\n%s\n[pods.node_labels]\n\"example.com/rack\" = \"7\"\n",
		filepath.Join(dir, "manifests"), filepath.Join(dir, "pod-logs"), more)
	m := pods{world.StartCompiled(t, dir, config+stage.Handlers)}
	t.Cleanup(m.endPods)
	return m
}

// endPods ends the pods of a script that failed: their agent would make them again.
func (m pods) endPods() {
	files, err := filepath.Glob(filepath.Join(m.manifests(), "*"))
	if err != nil || len(files) == 0 || !m.Alive() {
		return
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			m.T.Error(err)
		}
	}
	for end := time.Now().Add(node.Patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		list, err := m.ListPodSandbox(context.Background(), &runtime.ListPodSandboxRequest{})
		if err != nil || len(list.GetItems()) == 0 {
			return
		}
	}
}

func (m pods) daemonCommand(ts *testscript.TestScript, neg bool, args []string) {
	const usage = "usage: daemon kill|start|reload, or daemon rack NUMBER"
	if neg || len(args) == 0 {
		ts.Fatalf(usage)
	}
	switch args[0] {
	case "reload":
		ts.Check(syscall.Kill(m.DaemonPID(), syscall.SIGHUP))
	case "rack": // the node's label, for the next reload
		file := m.ConfigFile
		text, err := os.ReadFile(file)
		ts.Check(err)
		changed := regexp.MustCompile(`("example.com/rack" = ")[^"]*`).ReplaceAllString(string(text), "${1}"+args[1])
		ts.Check(os.WriteFile(file, []byte(changed), 0o600))
	case "kill":
		ts.Check(m.SignalDaemon(syscall.SIGKILL))
	case "start":
		ts.Check(m.StartDaemon(m.T.Context()))
	default:
		ts.Fatalf(usage)
	}
}
