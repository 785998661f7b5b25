package wasi

import "golang.org/x/sys/unix"

// Read reads from any kind of file. 0 bytes without an error are the end. The standard input ends
// with an Interrupt, once what lies in it has been read.
func (f *File) Read(b Buffers) (int, error) {
	switch f.kind {
	case KindNull:
		return 0, nil
	case KindSocket, KindListener:
		n, _, err := f.socket.receive(b, 0, 0)
		return n, f.ended(err)
	case KindStream:
		for len(b) > 0 {
			if err := f.sys.waiter.block(f, unix.POLLIN); err != nil {
				return 0, f.ended(err)
			}
			n, err := transfer(unix.SYS_READ, unix.SYS_READV, f.host, b)
			if err != unix.EAGAIN || f.flags&Nonblock != 0 {
				return n, err
			}
			// Another reader of the same pipe was faster.
		}
		return 0, nil
	}
	return transfer(unix.SYS_READ, unix.SYS_READV, f.host, b)
}

// ended turns "nothing there" into the end of the input for the standard input after an Interrupt.
func (f *File) ended(err error) error {
	if (err == unix.EAGAIN || err == unix.ECANCELED) && f.stdin && f.sys.waiter.interrupted.Load() {
		return nil
	}
	return err
}

// Write writes to any kind of file. n bytes have been written also where there is an error.
func (f *File) Write(b Buffers) (n int, err error) {
	switch f.kind {
	case KindNull:
		return b.total(), nil
	case KindSocket, KindListener:
		return f.socket.send(b, 0)
	case KindStream:
		return f.writeStream(b)
	}
	n, err = transfer(unix.SYS_WRITE, unix.SYS_WRITEV, f.host, b)
	if err == nil && f.flags&syncFlags != f.hostSync {
		err = f.settle()
	}
	return n, err
}

// HasRoom reports whether a pipe, terminal or socket takes Room bytes now, or is broken. Other files
// always do.
func (f *File) HasRoom() bool {
	switch f.kind {
	case KindStream, KindSocket:
		return f.sys.waiter.hasRoom(f)
	}
	return true
}

// writeStream writes to a pipe or a terminal, whose own non-blocking mode is not ours to change and
// not ours to rely on.
func (f *File) writeStream(b Buffers) (int, error) {
	if f.flags&Nonblock != 0 {
		if !f.sys.waiter.hasRoom(f) {
			return 0, unix.EAGAIN
		}
		b = b.shorten(Room)
	}
	for {
		n, err := transfer(unix.SYS_WRITE, unix.SYS_WRITEV, f.host, b)
		if err != unix.EAGAIN || f.flags&Nonblock != 0 {
			return n, err
		}
		if err := f.sys.waiter.drain(f); err != nil {
			return 0, err
		}
	}
}

// ReadAt reads at an offset and leaves the file's own offset alone.
func (f *File) ReadAt(b Buffers, offset int64) (int, error) {
	return transferAt(unix.SYS_PREADV, f.host, b, offset)
}

// WriteAt writes at an offset also when the file is in append mode, as POSIX has it. Linux would
// append; the open file is the guest's alone and the guest has one thread, so the mode is lifted
// for the length of the call.
func (f *File) WriteAt(b Buffers, offset int64) (int, error) {
	if f.flags&Append != 0 && f.kind == KindFile && !f.stdio {
		if err := setAppend(f.host, false); err != nil {
			return 0, err
		}
		defer setAppend(f.host, true)
	}
	n, err := transferAt(unix.SYS_PWRITEV, f.host, b, offset)
	if err == nil {
		err = f.settle()
	}
	return n, err
}

// settle does after a write what synchronous flags promise and the kernel was not asked for at
// open.
func (f *File) settle() error {
	switch missing := f.flags & syncFlags &^ f.hostSync; {
	case missing == 0 || f.kind != KindFile:
		return nil
	case missing == Dsync:
		return unix.Fdatasync(f.host)
	}
	return unix.Fsync(f.host)
}

// Seek is lseek(2), with its origins.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	return unix.Seek(f.host, offset, whence)
}

// Advise is posix_fadvise(2), with its advices.
func (f *File) Advise(offset, length int64, advice int) error {
	return unix.Fadvise(f.host, offset, length, advice)
}

// Allocate makes sure that a part of the file has room on the disk, and lengthens the file to its
// end.
func (f *File) Allocate(offset, length int64) error {
	return retry(func() error { return unix.Fallocate(f.host, 0, offset, length) })
}

// Sync returns when the file's data and metadata are on disk.
func (f *File) Sync() error { return unix.Fsync(f.host) }

// Datasync returns when the file's data is on disk.
func (f *File) Datasync() error { return unix.Fdatasync(f.host) }
