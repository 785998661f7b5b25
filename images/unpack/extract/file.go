package extract

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/images/unpack/fingerprint"
)

const (
	// fileBuffer is how much of a file is written at a time: the kernel takes
	// large pieces with less work.
	fileBuffer = 256 << 10
	// holeSize is in what pieces zeros become holes.
	holeSize = 64 << 10
	// earlyWrite is from which size on a file is sent to the disk when it
	// has been written, so that less is left to do when all is brought there.
	earlyWrite = 32 << 10
)

// file writes a regular file.
func (x *extraction) file(ctx context.Context, parent int, base string, h *tar.Header, content io.Reader) error {
	var fd int
	var st unix.Stat_t
	err := x.anew(parent, base, func() (err error) {
		fd, err = unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm(h))
		return err
	})
	if err != nil {
		return &os.PathError{Op: "create", Path: h.Name, Err: err}
	}
	sum, err := x.fill(ctx, fd, h, content)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: h.Name, Err: err}
	}
	x.sums[st.Ino] = sum
	return x.describe(parent, base, h, st)
}

// fill writes a file's content and returns its sum.
func (x *extraction) fill(ctx context.Context, fd int, h *tar.Header, content io.Reader) (sum uint32, err error) {
	if x.buf == nil {
		x.buf = make([]byte, fileBuffer)
	}
	sparse := isSparse(h)
	var size int64
	for {
		n, rerr := io.ReadFull(content, x.buf)
		data := x.buf[:n]
		sum = fingerprint.Update(sum, data)
		if sparse {
			err = writeData(fd, data, size)
		} else {
			err = write(fd, data, size)
		}
		if err != nil {
			return 0, err
		}
		size += int64(n)
		if rerr == io.EOF || rerr == io.ErrUnexpectedEOF {
			break
		}
		if rerr != nil {
			return 0, rerr
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
	if size != h.Size {
		return 0, io.ErrUnexpectedEOF
	}
	if sparse {
		if err := unix.Ftruncate(fd, size); err != nil {
			return 0, err
		}
	}
	if size >= earlyWrite {
		// It is for speed alone; what matters comes when the layer is committed.
		_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return sum, nil
}

// write writes data at an offset.
func write(fd int, data []byte, offset int64) error {
	for len(data) > 0 {
		n, err := unix.Pwrite(fd, data, offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}

// writeData does so except for pieces that are zeros.
func writeData(fd int, data []byte, offset int64) error {
	var zeros [holeSize]byte
	for len(data) > 0 {
		piece := data[:min(holeSize, len(data))]
		if !bytes.Equal(piece, zeros[:len(piece)]) {
			if err := write(fd, piece, offset); err != nil {
				return err
			}
		}
		data, offset = data[len(piece):], offset+int64(len(piece))
	}
	return nil
}
