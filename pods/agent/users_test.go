package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/agent/records"
)

// ranges gives the node n ranges of user ids: 65536, 131072 and so on.
func (w *world) ranges(n int) {
	w.t.Helper()
	text := fmt.Appendf(nil, "kubelet:65536:%d\n", n*identity.RangeLength)
	if err := errors.Join(os.WriteFile(filepath.Join(w.dir, "subuid"), text, 0o600), os.WriteFile(filepath.Join(w.dir, "subgid"), text, 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// ownUsers is the manifest of a pod with a user namespace.
func ownUsers(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {hostUsers: false, terminationGracePeriodSeconds: 1, containers: [{name: " + name + ", image: 'app:1'}]}\n---\n"
}

// userIDs are the first user ids of the sandboxes that are ready, by the names of their pods. None
// may be there twice.
func (w *world) userIDs() map[string]uint32 {
	w.t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	having, taken := map[string]uint32{}, map[uint32]string{}
	for _, s := range w.server.sandboxes {
		for _, u := range s.Linux.Namespaces.Options.GetUsernsOptions().GetUids() {
			if s.State != runtime.PodSandboxState_SANDBOX_READY {
				continue
			}
			if other := taken[u.HostId]; other != "" {
				w.t.Errorf("pods %s and %s have range %d", other, s.Metadata.Name, u.HostId)
			}
			having[s.Metadata.Name], taken[u.HostId] = u.HostId, s.Metadata.Name
		}
	}
	return having
}

// runOther makes the sandbox of a pod that is not the agent's.
func (w *world) runOther(name string, first uint32) (id string) {
	w.t.Helper()
	ids := []*runtime.IDMapping{{HostId: first, Length: identity.RangeLength}}
	resp, err := w.server.RunPodSandbox(w.t.Context(), &runtime.RunPodSandboxRequest{Config: &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Linux: &runtime.LinuxPodSandboxConfig{SecurityContext: &runtime.LinuxSandboxSecurityContext{NamespaceOptions: &runtime.NamespaceOption{
			UsernsOptions: &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD, Uids: ids, Gids: ids}}}},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.PodSandboxId
}

// SE11: each pod with a user namespace has a range, kept over restarts of the agent, and gives it
// back.
func TestUserNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ranges(2)
		w.wishes.set(t, ownUsers("a")+ownUsers("b")+ownUsers("c"))
		w.start()
		w.runs("a#0", "b#0")
		w.settle(time.Minute)
		if got := scheduled(w.pod("c")); !strings.Contains(got, "all 2 are in use") {
			t.Errorf("c: %s", got)
		}
		w.stop()
		w.start()
		w.settle(time.Minute)
		w.runs("a#0", "b#0")
		w.wishes.set(t, ownUsers("b")+ownUsers("c"))
		w.runs("b#0", "c#0")
		w.stop()
	})
}

// SE11: a pod never has the user ids of a `sunaba run` beside the agent, and waits for them.
// Nothing tells that they are given back.
func TestUserIDsOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ranges(2)
		o := w.options()
		o.UserRanges = filepath.Join(w.dir, "locks")
		run, err := identity.LockRange(o.UserRanges, 131072, "")
		if err != nil {
			t.Fatal(err)
		}
		text := ownUsers("a") + ownUsers("b")
		w.wishes.set(t, text)
		w.startWith(o)
		w.runs("a#0")
		w.settle(time.Minute)
		if got := scheduled(w.pod("b")); !strings.Contains(got, "all 2 are in use, some by other agents or runs") {
			t.Errorf("b: %s", got)
		}
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
		w.runs("a#0", "b#0")
		w.stop()
	})
}

// lateEvents is a server whose events arrive a second late.
type lateEvents struct{ *server }

func (s lateEvents) Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error {
	return s.server.Events(ctx, func(e *runtime.ContainerEventResponse) {
		if e != nil {
			time.Sleep(time.Second)
		}
		f(e)
	})
}

// The user ids of a pod that was removed are another's at once, though the events of its sandbox
// have yet to arrive.
func TestUserIDsOfARemovedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ranges(1)
		o := w.options()
		o.CRI = lateEvents{w.server}
		w.wishes.set(t, ownUsers("a"))
		w.startWith(o)
		w.runs("a#0")
		w.settle(time.Minute)
		w.wishes.set(t, ownUsers("b"))
		w.until("a removed", func() bool { _, found := w.agent.Pod("default", "a"); return !found })
		synctest.Wait()
		if got := scheduled(w.pod("b")); !strings.HasPrefix(got, "True ") {
			t.Errorf("b waits: %s", got)
		}
		w.runs("b#0")
		w.stop()
	})
}

// The lock of a run ends with its process. Its pod does not if the run was killed or had --keep:
// no other pod has its user ids as long as the server has its sandbox, which may be made before
// the agent starts or after.
func TestUserIDsOfAKilledRun(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.ranges(2)
			w.server.asked = func(string, string, uint32) {}
			o, id := w.options(), ""
			o.UserRanges = filepath.Join(w.dir, "locks")
			if before {
				id = w.runOther("killed", 131072)
			}
			w.startWith(o)
			w.settle(time.Second)
			if !before {
				id = w.runOther("killed", 131072)
				synctest.Wait() // the run has the lock until it knows that its pod is there
			}
			w.wishes.set(t, ownUsers("a")+ownUsers("b"))
			w.settle(time.Minute)
			if got := w.userIDs(); len(got) != 2 || got["killed"] != 131072 {
				t.Errorf("user ids %v", got)
			}
			if asked := w.server.count("PodSandboxStatus " + id); asked > 1 {
				t.Errorf("the other's sandbox was asked for %d times", asked)
			}
			if _, err := w.server.RemovePodSandbox(t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				t.Fatal(err)
			}
			w.runs("a#0", "b#0")
			w.userIDs()
			w.stop()
		})
	}
}

// A reboot takes the locks. A pod whose user ids another agent has by the time its own is started
// gets others for its new sandbox; while there are none, none is made.
func TestUserIDsAfterReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ranges(3)
		o := w.options()
		o.UserRanges = filepath.Join(w.dir, "locks")
		w.wishes.set(t, ownUsers("a"))
		w.startWith(o)
		w.runs("a#0")
		if got := w.userIDs(); !maps.Equal(got, map[string]uint32{"a": 65536}) {
			t.Fatalf("user ids %v", got)
		}
		w.stop()
		w.server.mu.Lock()
		for id, s := range w.server.sandboxes {
			for container := range w.server.containers {
				w.server.end(container, 255)
			}
			s.State = runtime.PodSandboxState_SANDBOX_NOTREADY
			w.server.tell(id, id, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT)
		}
		w.server.mu.Unlock()
		if err := os.RemoveAll(o.UserRanges); err != nil {
			t.Fatal(err)
		}
		var others []*os.File
		for _, first := range []uint32{65536, 131072, 196608} {
			f, err := identity.LockRange(o.UserRanges, first, "")
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, f)
		}
		asked := w.server.asked
		w.server.asked = func(uid, name string, attempt uint32) {
			asked(uid, name, attempt)
			var r records.Record
			data, err := os.ReadFile(filepath.Join(w.dir, "pods", uid, "pod.json"))
			if err = errors.Join(err, json.Unmarshal(records.Last(data), &r)); name == "" && (err != nil || r.UserNamespace == 65536) {
				t.Errorf("a sandbox is made while its user ids are not on record: %d, %v", r.UserNamespace, err)
			}
		}
		o.BootID = "boot-2"
		w.startWith(o)
		w.settle(time.Minute)
		if got := w.userIDs(); len(got) != 0 {
			t.Errorf("user ids %v, which others have", got)
		}
		refused := func(reason string) bool {
			return strings.Contains(reason, "FailedCreatePodSandBox") && strings.Contains(reason, "all 3 are in use, some by other")
		}
		if reasons := w.reasons("a"); !slices.ContainsFunc(reasons, refused) {
			t.Errorf("events %q", reasons)
		}
		if err := others[1].Close(); err != nil {
			t.Fatal(err)
		}
		w.until("a runs again", func() bool { return w.ready("a") })
		want := map[string]uint32{"a": 131072}
		if got := w.userIDs(); !maps.Equal(got, want) {
			t.Errorf("user ids %v, want %v", got, want)
		}
		w.stop()
		if err := errors.Join(others[0].Close(), others[2].Close()); err != nil {
			t.Fatal(err)
		}
		w.startWith(o) // the new ids are on record, the old ones those of the old sandbox
		w.wishes.set(t, ownUsers("a")+ownUsers("b"))
		w.until("b runs too", func() bool { return w.ready("b") })
		want["b"] = 196608
		if got := w.userIDs(); !maps.Equal(got, want) || !w.ready("a") {
			t.Errorf("user ids %v, want %v", got, want)
		}
		w.wishes.set(t, "")
		w.gone()
		w.stop()
	})
}
