package wasm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// A file that is run is known by its digest, and hashing tens of MiB takes longer than the rest of
// a start. So the cache has notes of the files that were hashed: what the kernel says of a file,
// and its digest. A note counts as long as the kernel says the same. That is right if each change
// of the content changes the time of the inode's last change (ctime), which no program can set, to
// another one. A file has a note only where that is so:
//
//   - It is on ext4, XFS or Btrfs. On tmpfs a write through a mapping may change no time;
//     overlayfs, FUSE and network file systems show the times of other files or machines.
//   - Nobody had it open for writing when its reading started: the kernel gave a lease. Otherwise a
//     mapping that has changed a page already may change it again, and the time stays.
//   - Its time had changed before then by more than the step of the kernel's clock: otherwise the
//     next write might have the same time (git calls such files racily clean).
//   - Its time has parts of a second: with whole seconds a second write in that second has the same
//     time, and images of disks that are built reproducibly give all files one time.
//   - It was the same before and after it was read.
//   - The machine has not been started anew: after a power cut a time may be older than the
//     content, and without a battery a clock tells the same times again.
//   - The notes and their folder belong to the user who runs, and nobody else may write them.
//
// Without a note, and in any doubt, the file is hashed. Who writes the disk itself or sets the
// clock can deceive it: that is root, who can replace the compiled modules too.

// hashedName is the file of the notes in the cache.
const hashedName = "hashed.json"

const (
	maxHashed = 64       // notes that are kept
	worthNote = 1 << 20  // bytes; smaller files are hashed in some milliseconds
	maxNotes  = 64 << 10 // bytes of the file of the notes
)

// settled is how long ago a file must have changed: far more than a step of the kernel's clock.
const settled = 2 * time.Second

// identity is what the kernel says of a file.
type identity struct {
	Boot     string `json:"boot"`
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // nanoseconds
	Changed  int64  `json:"changed"`
}

// hashed is the note of a file.
type hashed struct {
	identity
	Digest digest.Digest `json:"digest"`
}

// digest returns the digest of a file, by its note or by reading it, which makes a note of it. It
// returns "" for a file that can have no note: its user is to hash it.
func (n Node) digest(f *os.File) digest.Digest {
	id, ok := identify(f)
	if !ok || id.Size < worthNote {
		return ""
	}
	notes := n.hashed()
	if at := slices.IndexFunc(notes, func(h hashed) bool { return h.identity == id }); at >= 0 {
		return notes[at].Digest
	}
	if since := time.Since(time.Unix(0, id.Changed)); since < settled || !unwritten(f) {
		return ""
	}
	sum, err := compile.Digest(f)
	if after, ok := identify(f); err != nil || !ok || after != id {
		return ""
	}
	made := hashed{id, digest.Digest(sum)}
	// A note of another start of the machine, or of the file as it was, counts no more.
	notes = slices.DeleteFunc(notes, func(h hashed) bool { return h.Boot != id.Boot || h.Device == id.Device && h.Inode == id.Inode })
	notes = append(notes[max(0, len(notes)-maxHashed+1):], made)
	if data, err := json.Marshal(notes); err == nil && ours(n.Cache) {
		_ = durable.Replace(filepath.Join(n.Cache, hashedName), data, 0o600)
	}
	return made.Digest
}

// hashed reads the notes, none if anything is wrong with them.
func (n Node) hashed() (notes []hashed) {
	path := filepath.Join(n.Cache, hashedName)
	if !ours(n.Cache) || !ours(path) {
		return nil
	}
	data, err := regular.Read(path, maxNotes)
	if err != nil || json.Unmarshal(data, &notes) != nil {
		return nil
	}
	return slices.DeleteFunc(notes, func(h hashed) bool { return h.Digest.Validate() != nil || h.Digest.Algorithm() != digest.SHA256 })
}

// ours says whether a file or folder belongs to who runs, and only its owner may write it.
func ours(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSymlink != 0 || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	return int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

// identify asks the kernel what a file is, and says whether that changes with its content.
func identify(f *os.File) (identity, bool) {
	var st unix.Stat_t
	var on unix.Statfs_t
	start, err := boot.ID()
	if err != nil || unix.Fstat(int(f.Fd()), &st) != nil || unix.Fstatfs(int(f.Fd()), &on) != nil {
		return identity{}, false
	}
	id := identity{Boot: start, Device: uint64(st.Dev), Inode: st.Ino, Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
	return id, st.Mode&unix.S_IFMT == unix.S_IFREG && id.tells(uint32(on.Type))
}

// tells says whether the identity of a file on this kind of file system changes with its content.
func (id identity) tells(fileSystem uint32) bool {
	switch fileSystem {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
		return id.Boot != "" && id.Changed%int64(time.Second) != 0
	default:
		return false
	}
}

// unwritten says that nobody has a file open for writing, nor mapped: only then is there a lease
// for it.
func unwritten(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK) // who opens it now need not wait
	return err == nil
}
