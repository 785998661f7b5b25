package users

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/agent/pace"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

func recordOf(uid string, first uint32) *records.Record {
	rec := &records.Record{}
	rec.Record = *cycle.New(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}, "", cycle.Source{})
	rec.UserNamespace = first
	return rec
}

// A pod whose user ids are in the sandbox of another gets others only when its next sandbox is to be
// made, and its own lock is released then.
func TestChange(t *testing.T) {
	dir := t.TempDir()
	none, locks := filepath.Join(dir, "none"), filepath.Join(dir, "locks")
	ranges, err := identity.OpenRanges(none, none)
	if err != nil {
		t.Fatal(err)
	}
	ranges.Share(locks, filepath.Join(dir, "records"))
	u := New(ranges, pace.Since(time.Now()), time.Now, slog.New(slog.DiscardHandler))
	rec, host := recordOf("a", 65536), recordOf("host's", 0)
	for _, r := range []*records.Record{rec, host} {
		if err := u.Restore(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Restore(recordOf("b", 65536)); !errdefs.IsAlreadyExists(err) {
		t.Errorf("two pods of the agent have the same ids on record: %v", err)
	}
	ids := []*runtime.IDMapping{{HostId: 65536, Length: identity.RangeLength}}
	options := &runtime.NamespaceOption{UsernsOptions: &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD, Uids: ids, Gids: ids}}
	u.Listed([]*runtime.PodSandboxStatus{{
		Id: "other", Metadata: &runtime.PodSandboxMetadata{Uid: "other"},
		Linux: &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{Options: options}},
	}})
	start, run := []cycle.Action{{Verb: cycle.StartContainer}}, []cycle.Action{{Verb: cycle.RunSandbox}}
	for _, tt := range []struct {
		rec     *records.Record
		actions []cycle.Action
		changed bool
		first   uint32
	}{
		{rec, start, false, 65536},
		{host, run, false, 0},
		{rec, run, true, 131072},
		{rec, run, false, 131072},
	} {
		if changed, err := u.Change(tt.rec, tt.actions); err != nil || changed != tt.changed || tt.rec.UserNamespace != tt.first {
			t.Errorf("pod %s, %s: changed %v to %d, %v", tt.rec.UID(), tt.actions[0].Verb, changed, tt.rec.UserNamespace, err)
		}
	}
	old, err := identity.LockRange(locks, 65536, "")
	if err != nil {
		t.Fatalf("the lock of the ids that the pod had: %v", err)
	}
	if err := durable.RemoveLock(old); err != nil {
		t.Error(err)
	}
}
