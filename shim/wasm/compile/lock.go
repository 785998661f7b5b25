package compile

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is the file with a lock for each digest.
const lockName = "lock"

// lock takes the lock of one digest: one byte of CACHE/lock, at an offset from the digest, so that
// no files are created and removed. The lock is released when its process ends. Two digests that
// share a byte wait for each other.
func lock(ctx context.Context, cacheDir, digest string) (unlock func(), err error) {
	sum, err := hex.DecodeString(hash(digest))
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(cacheDir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of module cache: %w", err)
	}
	area := unix.Flock_t{Type: unix.F_WRLCK, Len: 1, Start: int64(binary.BigEndian.Uint32(sum) >> 1)}
	locked := make(chan error, 1)
	go func() {
		for {
			err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &area)
			if !errors.Is(err, unix.EINTR) {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock module cache: %w", err), f.Close())
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() {
			<-locked // taken or not, closing releases it
			f.Close()
		}()
		return nil, fmt.Errorf("wait for another compilation: %w", ctx.Err())
	}
}
