// Package inotify watches folders by inotify(7).
package inotify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Notice is one event of inotify: its watch, its mask, and the name in the watched folder.
type Notice struct {
	WD   int32
	Mask uint32
	Name string
}

// Watcher is an instance of inotify.
type Watcher struct {
	// Notices are the events, in their order. They must be received until Close.
	Notices chan []Notice

	fd   int
	file *os.File
	done chan struct{}
}

// Open makes an instance and reads it until Close.
func Open() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &Watcher{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), Notices: make(chan []Notice), done: make(chan struct{})}
	go w.read()
	return w, nil
}

// Close ends the reading.
func (w *Watcher) Close() error {
	close(w.done)
	return w.file.Close()
}

func (w *Watcher) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return // it was closed
		}
		select {
		case w.Notices <- parseNotices(buffer[:n]):
		case <-w.done:
			return
		}
	}
}

// parseNotices reads struct inotify_event, each followed by its name with NULs up to its length.
func parseNotices(data []byte) (out []Notice) {
	for len(data) >= unix.SizeofInotifyEvent {
		n := Notice{WD: int32(binary.NativeEndian.Uint32(data)), Mask: binary.NativeEndian.Uint32(data[4:])}
		size := int(binary.NativeEndian.Uint32(data[12:]))
		data = data[unix.SizeofInotifyEvent:]
		if size > len(data) {
			break
		}
		name, _, _ := bytes.Cut(data[:size], []byte{0})
		n.Name = string(name)
		data = data[size:]
		out = append(out, n)
	}
	return out
}

// Add watches the folder at path; one that is watched already has the same descriptor.
func (w *Watcher) Add(path string, events uint32) (int32, error) {
	wd, err := unix.InotifyAddWatch(w.fd, path, events)
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: raise fs.inotify.max_user_watches", err)
	}
	if err != nil {
		return None, &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	return int32(wd), nil
}

// None is the descriptor of no watch.
const None = -2

// Remove ends a watch. One that ended by itself is no error.
func (w *Watcher) Remove(wd int32) {
	if wd != None {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
	}
}
