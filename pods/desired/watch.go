package desired

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// What is watched. CREATE tells of links, which nobody closes.
const (
	folderEvents = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF |
		unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	parentEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
)

// notice is one event of inotify.
type notice struct {
	wd   int32
	mask uint32
	name string
}

// watcher is an instance of inotify.
type watcher struct {
	fd      int
	file    *os.File
	notices chan []notice
	done    chan struct{}
}

// openWatcher makes an instance and reads it until close.
func openWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &watcher{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), notices: make(chan []notice), done: make(chan struct{})}
	go w.read()
	return w, nil
}

// close ends the reading.
func (w *watcher) close() error {
	close(w.done)
	return w.file.Close()
}

func (w *watcher) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return // it was closed
		}
		select {
		case w.notices <- parseNotices(buffer[:n]):
		case <-w.done:
			return
		}
	}
}

// parseNotices reads struct inotify_event, each followed by its name with NULs up to its length.
func parseNotices(data []byte) (out []notice) {
	for len(data) >= unix.SizeofInotifyEvent {
		n := notice{wd: int32(binary.NativeEndian.Uint32(data)), mask: binary.NativeEndian.Uint32(data[4:])}
		size := int(binary.NativeEndian.Uint32(data[12:]))
		data = data[unix.SizeofInotifyEvent:]
		if size > len(data) {
			break
		}
		name, _, _ := bytes.Cut(data[:size], []byte{0})
		n.name = string(name)
		data = data[size:]
		out = append(out, n)
	}
	return out
}

// add watches the folder at path; one that is watched already has the same descriptor.
func (w *watcher) add(path string, events uint32) (int32, error) {
	wd, err := unix.InotifyAddWatch(w.fd, path, events)
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: raise fs.inotify.max_user_watches", err)
	}
	if err != nil {
		return none, &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	return int32(wd), nil
}

// none is the descriptor of no watch.
const none = -2

// remove ends a watch. One that ended by itself is no error.
func (w *watcher) remove(wd int32) {
	if wd != none {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
	}
}
