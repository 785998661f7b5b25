package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// tree is a mount of the host, of which a guest process gets a copy.
type tree struct {
	what, path string
	recursive  bool // with what is mounted below it
	stale      bool // a compiled module: one that is gone was dropped just now, and can be made again
}

// open makes the copy, which is attached nowhere.
func (t tree) open() (*os.File, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if t.recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, t.path, flags)
	if err != nil {
		err = fmt.Errorf("open %s: %w", t.what, &os.PathError{Op: "open_tree", Path: t.path, Err: err})
		if t.stale && errors.Is(err, fs.ErrNotExist) {
			return nil, &failure{link.Message{Kind: link.Error, Class: link.Stale, Text: err.Error()}}
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), t.path), nil
}

// outfit is what a guest process is sent: its configuration and the files that go with it.
type outfit struct {
	config link.Config
	files  []*os.File
	trees  []*os.File // those of the files that are ours
}

// initOutfit is what a container's first process is sent, with its streams unless it has them by
// birth.
func initOutfit(b *shim.Bundle, entry compile.Entry, io shim.IO, streams bool) (*outfit, error) {
	config, trees, err := initConfig(b, entry, io)
	if err != nil {
		return nil, err
	}
	o := &outfit{config: config}
	if streams {
		for number, f := range []*os.File{io.Stdin, io.Stdout, io.Stderr} {
			if f != nil {
				o.config.Streams, o.files = append(o.config.Streams, number), append(o.files, f)
			}
		}
	}
	return o, o.open(trees)
}

// open adds copies of trees. On error there are none.
func (o *outfit) open(trees []tree) error {
	for _, t := range trees {
		f, err := t.open()
		if err != nil {
			o.close()
			return err
		}
		o.trees = append(o.trees, f)
	}
	o.files = append(o.files, o.trees...)
	o.config.Files = len(o.files)
	return nil
}

// checkCode starts to check the machine code that the process will run, while the process loads the
// rest, and returns how to learn the result, nil without such code. It is the file that the process
// has, even if the entry is dropped meanwhile.
func (o *outfit) checkCode() (result func() (struct{}, error)) {
	if o.config.Load.CodeSize == 0 {
		return nil
	}
	fd, err := unix.Openat(int(o.trees[0].Fd()), compile.CodeName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	code := os.NewFile(uintptr(fd), compile.CodeName)
	return later(func() (struct{}, error) {
		defer code.Close()
		return struct{}{}, errors.Join(err, o.config.Load.CheckCode(code))
	})
}

// close lets go of what the process has its own copy of.
func (o *outfit) close() { closeAll(o.trees) }

// send hands it to a process.
func (o *outfit) send(to *os.File) error {
	if err := link.SendConfig(to, o.config); err != nil {
		return err
	}
	return link.SendFiles(to, o.files)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
