package identity

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

const (
	// RangeLength is how many ids each pod's user namespace has.
	RangeLength = 65536
	// subordinate is the user whose ranges in /etc/subuid and /etc/subgid are for pods.
	subordinate = "kubelet"
	maxSubIDs   = 1 << 20
	// others is what the error of Take adds if not all ranges are those of pods of this agent.
	others = ", some by other agents or runs of the machine"
)

// Ranges hands out ranges of user ids to pods with user namespaces. None is given twice.
type Ranges struct {
	first, count uint32 // in ranges
	used         map[uint32]string
	next         uint32
	locks        string // folder of the locks, "" for none
	records      string // folder of the pods' records
	held         map[uint32]*os.File
	sandboxes    map[string]sandbox // of the CRI server that have user ids of their own, by id
}

// Share has the ranges that pods get locked in a folder that all agents and runs of the machine
// share, so that no two of them give out one range. records is the folder of the pods' records.
func (r *Ranges) Share(locks, records string) {
	r.locks, r.records, r.held = locks, records, map[uint32]*os.File{}
}

func (r *Ranges) lock(uid string, first uint32) error {
	if r.locks == "" || r.held[first] != nil {
		return nil
	}
	f, err := LockRange(r.locks, first, filepath.Join(r.records, uid))
	if err == nil {
		r.held[first] = f
	}
	return err
}

// OpenRanges returns the ranges of this node: those that the files name for user kubelet, or, if
// neither is there or names it, all from id 65536 on. The last one of 32 bits is not among them: id
// 4294967295 stands for no user.
//
// # Errors
//
// ErrFailedPrecondition if what the files name is no use: uids and gids must be one same range,
// start at a multiple of 65536 that is not 0, and hold a multiple of 65536 ids.
func OpenRanges(subuid, subgid string) (*Ranges, error) {
	users, found, err := subordinates(subuid)
	if err != nil {
		return nil, err
	}
	groups, groupsFound, err := subordinates(subgid)
	if err != nil {
		return nil, err
	}
	if !found && !groupsFound {
		return newRanges(1, (1<<32)/RangeLength-2), nil
	}
	if users != groups {
		return nil, fmt.Errorf("read ranges of user %s: %q and %q differ, make them alike: %w", subordinate, subuid, subgid, errdefs.ErrFailedPrecondition)
	}
	start, length := users[0], users[1]
	if start == 0 || start%RangeLength != 0 || length == 0 || length%RangeLength != 0 || start+length > 1<<32 {
		return nil, fmt.Errorf("read ranges of user %s: %q has %d ids from %d on: both must be multiples of %d, and the first not 0: %w",
			subordinate, subuid, length, start, RangeLength, errdefs.ErrFailedPrecondition)
	}
	return newRanges(uint32(start/RangeLength), uint32(length/RangeLength)), nil
}

func newRanges(first, count uint32) *Ranges {
	return &Ranges{first: first, count: count, used: map[uint32]string{}, sandboxes: map[string]sandbox{}}
}

// subordinates are the first id and the number of ids that a file has for the user of pods.
func subordinates(path string) (r [2]uint64, found bool, err error) {
	data, err := regular.Read(path, maxSubIDs)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read ranges of user %s: %w", subordinate, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) != 3 || fields[0] != subordinate {
			continue
		}
		if found {
			return r, true, fmt.Errorf("read ranges of user %s: %q names more than one: %w", subordinate, path, errdefs.ErrFailedPrecondition)
		}
		found = true
		for i, text := range fields[1:] {
			if r[i], err = strconv.ParseUint(text, 10, 33); err != nil {
				return r, true, fmt.Errorf("read ranges of user %s: %q: %w: %w", subordinate, path, err, errdefs.ErrFailedPrecondition)
			}
		}
	}
	return r, found, lines.Err()
}

// Take reserves a range for a pod and returns its first id: one that no other agent, no run, and no
// sandbox of another pod has.
//
// # Errors
//
// ErrResourceExhausted if all are in use; else those of the locks' folder.
func (r *Ranges) Take(uid string) (uint32, error) {
	by := ""
	for range r.count {
		id := (r.first + r.next) * RangeLength
		r.next = (r.next + 1) % r.count
		if r.used[id] != "" {
			continue
		}
		if r.seen(uid, id) {
			by = others
			continue
		}
		err := r.lock(uid, id)
		if errors.Is(err, durable.ErrLocked) {
			by = others
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("take range of user ids for pod %q: %w", uid, err)
		}
		r.used[id] = uid
		return id, nil
	}
	return 0, fmt.Errorf("take range of user ids for pod %q: all %d are in use%s: %w", uid, r.count, by, errdefs.ErrResourceExhausted)
}

// Highest returns a Ranges of one range, the highest that is free and that no sandbox has: an agent
// that starts takes the lowest first, so the two seldom want the same.
//
// # Errors
//
// ErrResourceExhausted if none is free; those of free.
func (r *Ranges) Highest(free func(first uint32) (bool, error)) (*Ranges, error) {
	for i := r.count; i > 0; i-- {
		n := r.first + i - 1
		if r.seen("", n*RangeLength) {
			continue
		}
		is, err := free(n * RangeLength)
		if err != nil {
			return nil, err
		}
		if is {
			return newRanges(n, 1), nil
		}
	}
	return nil, fmt.Errorf("find range of user ids: all %d are in use: %w", r.count, errdefs.ErrResourceExhausted)
}

// Keep reserves a range that a pod has had since before.
//
// # Errors
//
// ErrAlreadyExists if another pod has it, durable.ErrLocked if that is another agent's or a run's;
// the range is kept for Renew then too. Else those of the locks' folder.
func (r *Ranges) Keep(uid string, first uint32) error {
	if other := r.used[first]; other != "" && other != uid {
		return fmt.Errorf("keep range of user ids %d of pod %q: pod %q has it: %w", first, uid, other, errdefs.ErrAlreadyExists)
	}
	r.used[first] = uid
	if err := r.lock(uid, first); err != nil {
		return fmt.Errorf("keep range of user ids %d of pod %q: %w", first, uid, err)
	}
	return nil
}

// Renew returns the first id of the range with which a pod's next sandbox is made: its present one,
// or, if that is another's by now, one that is taken for it; the caller releases the present one
// then. The locks are on a file system that a reboot empties, so another agent or a run may have
// taken it before the pod's agent was started.
//
// # Errors
//
// Those of Take.
func (r *Ranges) Renew(uid string, first uint32) (uint32, error) {
	if !r.seen(uid, first) {
		if err := r.Keep(uid, first); !errors.Is(err, durable.ErrLocked) {
			return first, err
		}
	}
	return r.Take(uid)
}

// Release frees the range of a pod. It does nothing if that is another's or 0.
func (r *Ranges) Release(uid string, first uint32) error {
	if r.used[first] != uid {
		return nil
	}
	delete(r.used, first)
	f := r.held[first]
	if f == nil {
		return nil
	}
	delete(r.held, first)
	if err := durable.RemoveLock(f); err != nil { // without the pod's record it locks nothing
		return fmt.Errorf("release range of user ids %d of pod %q: %w", first, uid, err)
	}
	return nil
}
