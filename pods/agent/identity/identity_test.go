package identity

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/durable"
)

// B.4: the mark is made once; UIDs are random UUIDs.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	first, err := Mark(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Mark(dir); err != nil || again != first || len(first) != 36 {
		t.Errorf("marks %q and %q, %v", first, again, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "agent"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Mark(dir); !errdefs.IsDataLoss(err) {
		t.Errorf("a damaged mark: %v", err)
	}
	if a, b := UID(), UID(); a == b || a[14] != '4' {
		t.Errorf("UIDs %s and %s", a, b)
	}
}

// SE11: ranges begin at multiples of 65536, none twice, those of user kubelet if there are some.
func TestRanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "subid")
	for _, tt := range []struct {
		name, text string
		first      uint32
		count      int
		bad        bool
	}{
		{name: "no user", text: "alice:100000:65536\n", first: 65536, count: 65534},
		{name: "user", text: "# pods\nalice:100000:65536\nkubelet:131072:131072\n", first: 131072, count: 2},
		{name: "odd first", text: "kubelet:100000:65536\n", bad: true},
		{name: "odd count", text: "kubelet:65536:1000\n", bad: true},
		{name: "root", text: "kubelet:0:65536\n", bad: true},
		{name: "twice", text: "kubelet:65536:65536\nkubelet:131072:65536\n", bad: true},
		{name: "no number", text: "kubelet:a:65536\n", bad: true},
		{name: "too far", text: "kubelet:4294901760:131072\n", bad: true},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenRanges(file, file)
		if tt.bad {
			if !errdefs.IsFailedPrecondition(err) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		for i := range tt.count {
			if got, err := r.Take("pod"); err != nil || got != tt.first+uint32(i)*RangeLength {
				t.Errorf("%s: range %d is %d, %v", tt.name, i, got, err)
			}
		}
		if _, err := r.Take("pod"); !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: one too many: %v", tt.name, err)
		}
		if err := errors.Join(r.Release("other", tt.first), r.Release("pod", tt.first)); err != nil {
			t.Error(err)
		}
		if got, err := r.Take("pod"); err != nil || got != tt.first {
			t.Errorf("%s: released range %d, %v", tt.name, got, err)
		}
	}
}

// Ranges of before a restart of the agent are kept; both files are needed.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	file, none := filepath.Join(dir, "subid"), filepath.Join(dir, "none")
	if err := os.WriteFile(file, []byte("kubelet:65536:65536\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRanges(file, none); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("uids without gids: %v", err)
	}
	r, err := OpenRanges(none, none)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Keep("old", 65536); err != nil {
		t.Error(err)
	}
	if err := r.Keep("other", 65536); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a range of two pods: %v", err)
	}
	if got, err := r.Take("new"); err != nil || got != 131072 {
		t.Errorf("range %d beside a kept one, %v", got, err)
	}
}

// SE11: two agents and a run of one machine never have one range, also while an agent does not run;
// what an agent has left without its record is free.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	locks, file := filepath.Join(dir, "locks"), filepath.Join(dir, "subid")
	if err := os.WriteFile(file, []byte("kubelet:65536:196608\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(records string) *Ranges { return openShared(t, file, locks, filepath.Join(dir, records)) }
	take := func(r *Ranges, pod string, want uint32) {
		t.Helper()
		if first, err := r.Take(pod); err != nil || first != want {
			t.Errorf("%s has range %d, %v, want %d", pod, first, err, want)
		}
	}
	run, err := LockRange(locks, 196608, "")
	if err != nil {
		t.Fatal(err)
	}
	one, two := open("one"), open("two")
	take(one, "a", 65536)
	take(two, "b", 131072)
	if first, err := one.Take("c"); !errdefs.IsResourceExhausted(err) {
		t.Errorf("range %d of a run or of another agent, %v", first, err)
	}
	// All are killed.
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "one", "a"), 0o700), one.held[65536].Close(), two.held[131072].Close(), run.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := LockRange(locks, 65536, ""); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("range of a pod whose agent does not run: %v", err)
	}
	take(open("two"), "d", 131072) // b's record was not written
	again := open("one")
	if err := again.Keep("a", 65536); err != nil {
		t.Error(err)
	}
	take(again, "e", 196608)
	if err := again.Release("a", 65536); err != nil {
		t.Error(err)
	}
	take(again, "f", 65536)
}

// Highest takes the last range that is free, and hands out no other.
func TestHighest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subid")
	if err := os.WriteFile(file, []byte("kubelet:65536:262144\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := OpenRanges(file, file)
	if err != nil {
		t.Fatal(err)
	}
	all.See(sandboxOf("b", "", 4*RangeLength, RangeLength))
	r, err := all.Highest(func(first uint32) (bool, error) { return first != 3*RangeLength, nil })
	if err != nil {
		t.Fatal(err)
	}
	if first, err := r.Take("a"); err != nil || first != 2*RangeLength {
		t.Errorf("range %d, %v", first, err)
	}
	if first, err := r.Take("b"); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a second range: %d, %v", first, err)
	}
	if _, err := all.Highest(func(uint32) (bool, error) { return false, nil }); !errdefs.IsResourceExhausted(err) {
		t.Errorf("none is free: %v", err)
	}
	none := filepath.Join(t.TempDir(), "none")
	if whole, err := OpenRanges(none, none); err != nil {
		t.Error(err)
	} else if _, err := whole.Highest(func(first uint32) (bool, error) { return first == 65534*RangeLength, errIfLast(first) }); err != nil {
		t.Errorf("the highest range of all: %v", err)
	}
}

// Without /etc/subuid each agent may run as many pods as it may have, also beside another one:
// there are 65,534 ranges.
func TestSharedWithoutSubUIDs(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	given := map[uint32]bool{}
	for _, records := range []string{"one", "two"} {
		r := openShared(t, none, filepath.Join(dir, "locks"), filepath.Join(dir, records))
		for _, pod := range []string{"a", "b"} {
			first, err := r.Take(pod)
			if err != nil || given[first] {
				t.Errorf("range %d of pod %s of agent %s: %v", first, pod, records, err)
			}
			given[first] = true
		}
	}
}

// The folder of the locks is on a tmpfs. After a reboot another agent may give a pod's range away
// before the pod's own agent is started: the pod then gets another one for its next sandbox, and
// the other's stays locked.
func TestSharedAfterReboot(t *testing.T) {
	dir := t.TempDir()
	locks, file := filepath.Join(dir, "locks"), filepath.Join(dir, "subid")
	if err := os.WriteFile(file, []byte("kubelet:65536:131072\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(records string) *Ranges { return openShared(t, file, locks, filepath.Join(dir, records)) }
	one := open("one")
	first, err := one.Take("a")
	if err != nil {
		t.Fatal(err)
	}
	// Its record stays, the locks do not.
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "one", "a"), 0o700), one.held[first].Close(), os.RemoveAll(locks)); err != nil {
		t.Fatal(err)
	}
	two := open("two")
	if other, err := two.Take("b"); err != nil || other != first {
		t.Fatalf("range %d, %v, want %d", other, err, first)
	}
	run, err := LockRange(locks, 131072, "")
	if err != nil {
		t.Fatal(err)
	}
	again := open("one")
	if err := again.Keep("a", first); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("a range that another agent has: %v", err)
	}
	if got, err := again.Renew("a", first); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "all 2 are in use, some by other") {
		t.Errorf("range %d while others have all, %v", got, err)
	}
	if err := durable.RemoveLock(run); err != nil {
		t.Fatal(err)
	}
	next, err := again.Renew("a", first)
	if err != nil || next != 131072 {
		t.Errorf("range %d for the next sandbox, %v", next, err)
	}
	if err := again.Release("a", first); err != nil {
		t.Error(err)
	}
	if _, err := LockRange(locks, first, ""); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("the other agent's lock after the release of a range that was its own no more: %v", err)
	}
	if same, err := again.Renew("a", next); err != nil || same != next {
		t.Errorf("range %d for the sandbox after that, %v", same, err)
	}
	// Who has it gives it back before the next sandbox.
	if err := two.Release("b", first); err != nil {
		t.Fatal(err)
	}
	late := open("three")
	lock, err := LockRange(locks, first, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Keep("c", first); !errors.Is(err, durable.ErrLocked) {
		t.Error(err)
	}
	if err := durable.RemoveLock(lock); err != nil {
		t.Fatal(err)
	}
	if same, err := late.Renew("c", first); err != nil || same != first {
		t.Errorf("range %d, that is free again, %v", same, err)
	}
}

// The ids of a sandbox are given to no other pod, also if they are in two ranges, until it is
// removed.
func TestSandboxes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subid")
	if err := os.WriteFile(file, []byte("kubelet:65536:262144\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRanges(file, file)
	if err != nil {
		t.Fatal(err)
	}
	r.See(sandboxOf("x", "other", 100000, RangeLength))
	r.See(sandboxOf("y", "a", 3*RangeLength, RangeLength))
	r.See(&runtime.PodSandboxStatus{Id: "z", Metadata: &runtime.PodSandboxMetadata{Uid: "host's"}})
	if first, err := r.Take("b"); err != nil || first != 4*RangeLength {
		t.Errorf("range %d beside those of sandboxes, %v", first, err)
	}
	if first, err := r.Take("a"); err != nil || first != 3*RangeLength {
		t.Errorf("range %d of the pod's own sandbox, %v", first, err)
	}
	if _, err := r.Take("c"); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "all 4 are in use, some by other") {
		t.Errorf("all are in use: %v", err)
	}
	r.Unsee("x")
	if first, err := r.Take("c"); err != nil || first != RangeLength {
		t.Errorf("range %d of a sandbox that was removed, %v", first, err)
	}
	r.See(sandboxOf("w", "other", RangeLength, RangeLength))
	if first, err := r.Renew("c", RangeLength); err != nil || first != 2*RangeLength {
		t.Errorf("range %d for the next sandbox, %v: another sandbox has the one before", first, err)
	}
	r.UnseeAll()
	if r.seen("", 3*RangeLength) {
		t.Error("a sandbox is known that is not listed")
	}
}

// A range whose record cannot be looked for is not free, and the file that names the pod's own
// record is not written again.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	locks, record := filepath.Join(dir, "locks"), filepath.Join(dir, "record")
	f, err := LockRange(locks, 65536, record)
	if err != nil {
		t.Fatal(err)
	}
	written := func() time.Time {
		t.Helper()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	long := time.Unix(1000, 0)
	if err := os.Chtimes(f.Name(), long, long); err != nil {
		t.Fatal(err)
	}
	if err := claim(f, record); err != nil || !written().Equal(long) {
		t.Errorf("the pod's own lock was written at %v, %v", written(), err)
	}
	if err := os.WriteFile(record, nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Name(), []byte(filepath.Join(record, "below")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := claim(f, "other"); !errors.Is(err, durable.ErrLocked) || !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a record that cannot be looked for: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// sandboxOf is the status of a sandbox with user ids of its own.
func sandboxOf(id, uid string, first, length uint32) *runtime.PodSandboxStatus {
	ids := []*runtime.IDMapping{{HostId: first, Length: length}}
	options := &runtime.NamespaceOption{UsernsOptions: &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD, Uids: ids, Gids: ids}}
	return &runtime.PodSandboxStatus{
		Id: id, Metadata: &runtime.PodSandboxMetadata{Uid: uid},
		Linux: &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{Options: options}},
	}
}

// openShared returns the ranges of an agent with a folder of records.
func openShared(t *testing.T, subids, locks, records string) *Ranges {
	t.Helper()
	r, err := OpenRanges(subids, subids)
	if err != nil {
		t.Fatal(err)
	}
	r.Share(locks, records)
	return r
}

// errIfLast is an error for the range that has user id -1.
func errIfLast(first uint32) error {
	if first == 65535*RangeLength {
		return errdefs.ErrOutOfRange
	}
	return nil
}
