package extract

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory that a stream of zstd may ask for, in bytes. The
// zstd tool allows as much unless it is told otherwise.
const maxWindow = 128 << 20

// Decompress reads what gzip or zstd has compressed; anything else is as it is.
//
// # Errors
//
// ErrInvalidArgument from the reader for a stream that needs too much memory.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	head, err := buffered.Peek(8)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if compression.DetectCompression(head) != compression.Zstd {
		return compression.DecompressStream(buffered)
	}
	z, err := zstd.NewReader(buffered, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return zstdReader{z.IOReadCloser()}, nil
}

type zstdReader struct{ io.ReadCloser }

func (z zstdReader) Read(p []byte) (int, error) {
	n, err := z.ReadCloser.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("it needs more than %d bytes of memory to be decompressed: %w", maxWindow, errdefs.ErrInvalidArgument)
	}
	return n, err
}
