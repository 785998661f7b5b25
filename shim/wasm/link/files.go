package link

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// batch is how many open files go with one byte: the kernel takes 253.
const batch = 250

// SendFiles gives the other side descriptors of open files, in their order, after what was written
// before. How many there are it must know from there.
func SendFiles(to *os.File, files []*os.File) error {
	conn, err := to.SyscallConn()
	if err != nil {
		return err
	}
	for len(files) > 0 {
		n := min(len(files), batch)
		fds := make([]int, n)
		for i, f := range files[:n] {
			fds[i] = int(f.Fd())
		}
		var failed error
		err := conn.Write(func(fd uintptr) bool {
			_, failed = unix.SendmsgN(int(fd), []byte{0}, unix.UnixRights(fds...), nil, 0)
			return !again(failed)
		})
		if err := errors.Join(err, failed); err != nil {
			return fmt.Errorf("send files: %w", err)
		}
		files = files[n:]
	}
	return nil
}

// ReceiveFiles takes n descriptors, which close on exec. On error it returns none.
func ReceiveFiles(from *os.File, n int) ([]int, error) {
	conn, err := from.SyscallConn()
	if err != nil {
		return nil, err
	}
	control := make([]byte, unix.CmsgSpace(4*min(n, batch)))
	var fds []int
	for len(fds) < n {
		some, err := receiveBatch(conn, control)
		fds = append(fds, some...)
		if err == nil && len(some) == 0 {
			err = errors.New("there are fewer than announced")
		}
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("receive files: %w", err)
		}
	}
	if len(fds) > n {
		closeAll(fds)
		return nil, fmt.Errorf("receive files: %d instead of %d", len(fds), n)
	}
	return fds, nil
}

func receiveBatch(conn interface {
	Read(func(fd uintptr) bool) error
}, control []byte) ([]int, error) {
	var n, controlled, flags int
	var failed error
	err := conn.Read(func(fd uintptr) bool {
		var one [1]byte
		n, controlled, flags, _, failed = unix.Recvmsg(int(fd), one[:], control, unix.MSG_CMSG_CLOEXEC)
		return !again(failed)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	fds, err := rights(control[:controlled])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("there are more than announced, or than this process may have open")
	}
	return fds, err
}

func again(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

// rights takes the descriptors out of control messages.
func rights(control []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
