// Package quota counts what directories hold by project quotas, which ext4 and XFS have when they
// are mounted with prjquota: the kernel counts every block and inode of a project as it is used, so
// no tree is walked.
package quota

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/space"
)

// The ids that this package gives are First to First+Count-1. An administrator who numbers projects
// of the same file system stays outside.
const (
	First = 0x53000000
	Count = 1 << 24
)

// tries bounds the search for an id that is free.
const tries = 64

// attributes is struct fsxattr of linux/fs.h.
type attributes struct {
	flags, extentSize, extents, project, copyExtentSize uint32
	_                                                   [8]byte
}

// What linux/fs.h and linux/quota.h name, which x/sys does not have.
const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit       = 0x200      // FS_XFLAG_PROJINHERIT
	getQuota      = 0x800007<<8 | 2
)

// record is struct if_dqblk of linux/quota.h: bytes and inodes.
type record struct {
	hardLimit, softLimit, space           uint64
	inodeHardLimit, inodeSoftLimit, files uint64
	time, inodeTime                       uint64
	valid                                 uint32
	_                                     uint32
}

func (r *record) used() bool {
	return r.space != 0 || r.files != 0 || r.hardLimit != 0 || r.inodeHardLimit != 0
}

// Giver gives directories projects. One process has one: a second would not see what the first is
// about to give.
type Giver struct {
	mu sync.Mutex // is held while an id is chosen
}

// Assign makes an empty directory a project of its own, which all that is made in it belongs to. It
// reports whether it did: it does not where the file system has no project quotas, and where the
// directory is in a project already, since a limit of that project holds for what is below it.
func (g *Giver) Assign(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	a, err := read(f)
	if err != nil || a.project != 0 || a.flags&inherit != 0 {
		return false, unlessMissing(err)
	}
	for range tries {
		id := First + rand.Uint32N(Count)
		r, err := ask(f, id)
		if errors.Is(err, unix.ENOENT) { // XFS has no record of a project that nothing belongs to
			err = nil
		}
		if err != nil {
			return false, unlessMissing(err)
		}
		if r.used() {
			continue
		}
		a.project, a.flags = id, a.flags|inherit
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), setAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
			return false, unlessMissing(fmt.Errorf("set project of %q: %w", dir, errno))
		}
		return true, nil
	}
	return false, fmt.Errorf("set project of %q: no free id after %d tries", dir, tries)
}

// Used returns what is in the project of a directory that Assign made one, and whether it is one.
// The bytes are those of whole blocks, and deleted files count as long as they are open.
func Used(dir string) (space.Use, bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return space.Use{}, false, err
	}
	defer f.Close()
	a, err := read(f)
	if err != nil || a.project < First || a.project >= First+Count || a.flags&inherit == 0 {
		return space.Use{}, false, unlessMissing(err)
	}
	above, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return space.Use{}, false, err
	}
	defer above.Close()
	b, err := read(above)
	if err != nil || b.project == a.project {
		return space.Use{}, false, unlessMissing(err)
	}
	r, err := ask(f, a.project)
	if err != nil {
		return space.Use{}, false, unlessMissing(err)
	}
	return space.Use{Bytes: int64(r.space), Inodes: int64(r.files)}, true, nil
}

func read(f *os.File) (a attributes, err error) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return a, fmt.Errorf("get project of %q: %w", f.Name(), errno)
	}
	return a, nil
}

func ask(f *os.File, id uint32) (r record, err error) {
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), getQuota, uintptr(id), uintptr(unsafe.Pointer(&r)), 0, 0); errno != 0 {
		return r, fmt.Errorf("get quota of project %d of %q: %w", id, f.Name(), errno)
	}
	return r, nil
}

// unlessMissing drops the errors of a file system or a kernel without project quotas: ESRCH where
// they are off.
func unlessMissing(err error) error {
	for _, missing := range []error{unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOSYS, unix.ESRCH, unix.EINVAL, unix.ENOTBLK, unix.ENOENT} {
		if errors.Is(err, missing) {
			return nil
		}
	}
	return err
}
