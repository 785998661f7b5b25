package identity

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

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
		{name: "no user", text: "alice:100000:65536\n", first: 65536, count: 3},
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
		r, err := OpenRanges(file, file, 3)
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
		r.Release("other", tt.first)
		r.Release("pod", tt.first)
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
	if _, err := OpenRanges(file, none, 3); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("uids without gids: %v", err)
	}
	r, err := OpenRanges(none, none, 2)
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
	open := func(records string) *Ranges {
		t.Helper()
		r, err := OpenRanges(file, file, 1)
		if err != nil {
			t.Fatal(err)
		}
		r.Share(locks, filepath.Join(dir, records))
		return r
	}
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
	again.Release("a", 65536)
	take(again, "f", 65536)
}

// Highest takes the last range that is free, and hands out no other.
func TestHighest(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	all, err := OpenRanges(none, none, 3)
	if err != nil {
		t.Fatal(err)
	}
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
	if whole, err := OpenRanges(none, none, 1<<20); err != nil {
		t.Error(err)
	} else if _, err := whole.Highest(func(first uint32) (bool, error) { return first == 65534*RangeLength, errIfLast(first) }); err != nil {
		t.Errorf("the highest range of all: %v", err)
	}
}

// errIfLast is an error for the range that has user id -1.
func errIfLast(first uint32) error {
	if first == 65535*RangeLength {
		return errdefs.ErrOutOfRange
	}
	return nil
}
