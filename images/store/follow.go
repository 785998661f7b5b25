package store

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// Follow opens a blob that is there or comes in, and waits for one that does neither until ctx
// ends: somebody has to Ingest it. The reader returns the bytes as they come, before they are
// verified, and io.EOF only once the blob is verified. A caller that keeps its results only after
// io.EOF keeps nothing wrong.
//
// An Ingest that ends with an error leaves the reader waiting for the next one.
//
// # Errors
//
// ErrAborted from the reader if the blob proved corrupt after some of it was read: the caller
// discards its results and may retry with a new Follow. Otherwise the context's error.
func (c *Content) Follow(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	f := &follower{c: c, ctx: ctx, desc: desc}
	return f, f.find()
}

type follower struct {
	c      *Content
	ctx    context.Context
	desc   ocispec.Descriptor
	file   *os.File
	offset int64
	whole  bool    // file is the blob
	in     *ingest // else whose file it is
	anew   int
}

// find opens the blob or the part of it that has come in. Bytes that were read before must be its
// start.
func (f *follower) find() error {
	for {
		f.c.ingestMu.Lock()
		in, started := f.c.ingests[f.desc.Digest], f.c.started
		var passing *os.File
		var err error
		if in == nil && f.c.passing[f.desc.Digest] {
			passing, err = os.Open(f.c.ingestPath(f.desc.Digest))
		}
		f.c.ingestMu.Unlock()
		if err != nil {
			return fmt.Errorf("open blob %s: %w", f.desc.Digest, err)
		}
		if passing != nil {
			f.replace(passing)
			f.in, f.whole = nil, true
			return nil
		}
		var opened bool
		if in != nil {
			opened, err = f.join(in)
		} else if f.c.Has(f.ctx, f.desc) {
			return f.settle()
		}
		if opened || err != nil {
			return err
		}
		if in != nil {
			started = in.done
		}
		select {
		case <-started:
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		}
	}
}

// settle makes the follower read the blob, which is there.
func (f *follower) settle() error {
	file, err := os.Open(f.c.Path(f.desc.Digest))
	if err != nil {
		return fmt.Errorf("open blob %s: %w", f.desc.Digest, err)
	}
	f.replace(file)
	f.in, f.whole = nil, true
	return nil
}

// join makes the follower read the file of an ingest, unless that has ended.
func (f *follower) join(in *ingest) (bool, error) {
	for {
		in.mu.Lock()
		file, anew, ended, changed := in.file, in.anew, in.ended, in.changed
		if ended {
			in.mu.Unlock()
			return false, nil
		}
		if file != nil {
			// By its descriptor: it may be renamed at any moment.
			fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			in.mu.Unlock()
			if err != nil {
				return false, fmt.Errorf("follow blob %s: %w", f.desc.Digest, err)
			}
			own := os.NewFile(uintptr(fd), in.path)
			if f.offset > 0 && anew > 0 {
				own.Close()
				return false, f.aborted()
			}
			f.replace(own)
			f.in, f.anew = in, anew
			return true, nil
		}
		in.mu.Unlock()
		select {
		case <-changed:
		case <-f.ctx.Done():
			return false, context.Cause(f.ctx)
		}
	}
}

func (f *follower) replace(file *os.File) {
	if f.file != nil {
		f.file.Close()
	}
	f.file = file
}

func (f *follower) aborted() error {
	return fmt.Errorf("read blob %s while it comes: it was corrupt and is fetched anew: %w", f.desc.Digest, errdefs.ErrAborted)
}

func (f *follower) Read(p []byte) (int, error) {
	for {
		if f.whole {
			return f.read(p, f.desc.Size)
		}
		f.in.mu.Lock()
		size, anew, ended, err, changed := f.in.size, f.in.anew, f.in.ended, f.in.err, f.in.changed
		f.in.mu.Unlock()
		switch {
		case anew != f.anew && f.offset > 0:
			return 0, f.aborted()
		case anew != f.anew:
			if _, err := f.join(f.in); err != nil {
				return 0, err
			}
		case ended && err == nil:
			f.whole = true
		case f.offset < size:
			return f.read(p, size)
		case ended && isCorrupt(err) && f.offset > 0:
			return 0, f.aborted()
		case ended:
			if err := f.find(); err != nil {
				return 0, err
			}
		default:
			select {
			case <-changed:
			case <-f.ctx.Done():
				return 0, context.Cause(f.ctx)
			}
		}
	}
}

// read reads what the file holds before the end.
func (f *follower) read(p []byte, end int64) (int, error) {
	if f.offset >= end {
		return 0, io.EOF
	}
	n, err := f.file.ReadAt(p[:min(int64(len(p)), end-f.offset)], f.offset)
	f.offset += int64(n)
	if n > 0 {
		return n, nil
	}
	switch {
	case err == io.EOF && !f.whole:
		return 0, f.aborted()
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return 0, fmt.Errorf("read blob %s: %w", f.desc.Digest, err)
}

func (f *follower) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
