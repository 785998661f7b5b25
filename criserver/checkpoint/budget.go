package checkpoint

import (
	"fmt"
	"io"

	"github.com/containerd/errdefs"
)

const (
	// maxDocument bounds a file that is read as a whole: the kernel takes 2 MiB of arguments and
	// environment.
	maxDocument = 4 << 20
	// maxDeleted bounds the list of what a container had removed.
	maxDeleted = 16 << 20
	// maxFiles bounds the files of an archive, and those that a container had written.
	maxFiles = 1 << 20
)

// budget bounds what is laid out of a checkpoint, which comes from anywhere: a small archive may
// unpack to anything.
type budget struct {
	bytes, limit int64
	files        int
}

func newBudget(limit int64) *budget { return &budget{bytes: limit, limit: limit, files: maxFiles} }

// file is told of each file that is about to be made.
func (b *budget) file() error {
	if b.files--; b.files < 0 {
		return fmt.Errorf("it has more than %d files: %w", maxFiles, errdefs.ErrInvalidArgument)
	}
	return nil
}

// take is told of bytes that are about to be written.
func (b *budget) take(n int64) error {
	if n < 0 || n > b.bytes {
		b.bytes = 0
		return fmt.Errorf("it unpacks to more than %d bytes (images.max_layer_mib): %w", b.limit, errdefs.ErrInvalidArgument)
	}
	b.bytes -= n
	return nil
}

// reader takes what is read of r.
func (b *budget) reader(r io.Reader) io.Reader { return spending{r, b} }

type spending struct {
	io.Reader
	budget *budget
}

func (s spending) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if terr := s.budget.take(int64(n)); terr != nil {
		return 0, terr
	}
	return n, err
}
