package tree

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one look at one tree.
const (
	mostEntries = 1 << 20
	longestLook = 5 * time.Second
)

// Use is the room that the files of a tree take.
type Use struct {
	// Bytes are those on the disk, Inodes is the number of files and folders. A file with several
	// names counts once.
	Bytes, Inodes int64
	// Complete is false if the tree has more files than are looked at, or deeper folders: it takes
	// at least this room.
	Complete bool
}

// Used measures what is below a folder, and the folder. It takes 5 seconds at most.
//
// # Errors
//
// fs.ErrNotExist if there is none; else the context's and those of the file system.
func Used(ctx context.Context, path string) (Use, error) {
	root, err := openFolder(path)
	if err != nil {
		return Use{}, err
	}
	defer unix.Close(root)
	return usedBelow(ctx, root, mostEntries)
}

func usedBelow(ctx context.Context, root int, limit int64) (Use, error) {
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return Use{}, err
	}
	use := Use{Bytes: st.Blocks * 512, Inodes: 1}
	linked := map[uint64]bool{} // one file system: the walk enters no mounts
	bounded, stop := context.WithTimeout(ctx, longestLook)
	defer stop()
	complete, err := walk(bounded, root, limit, func(_ int, _ string, st *unix.Statx_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			if linked[st.Ino] {
				return nil
			}
			linked[st.Ino] = true
		}
		use.Inodes++
		use.Bytes += int64(st.Blocks) * 512
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		complete, err = false, nil
	}
	use.Complete = complete
	return use, err
}
