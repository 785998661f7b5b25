package main

import (
	"io/fs"
	"time"

	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// steadyFS is a tree that looks the same in every run: its files have numbers in the order in which
// the guest meets them, and what was made or changed since the run started is from its first moment.
type steadyFS struct {
	experimentalsys.FS
	numbers  map[sys.Inode]sys.Inode
	begun    int64 // in real time: what is from then on is the run's
	readOnly bool  // so that only the machine's own reading changes a time
}

func newSteadyFS(tree experimentalsys.FS, begun time.Time, readOnly bool) *steadyFS {
	return &steadyFS{FS: tree, numbers: map[sys.Inode]sys.Inode{}, begun: begun.UnixNano(), readOnly: readOnly}
}

func (s *steadyFS) number(ino sys.Inode) sys.Inode {
	if _, known := s.numbers[ino]; !known {
		s.numbers[ino] = sys.Inode(len(s.numbers) + 1)
	}
	return s.numbers[ino]
}

func (s *steadyFS) steady(st sys.Stat_t) sys.Stat_t {
	st.Dev, st.Ino = 1, s.number(st.Ino)
	if s.readOnly {
		st.Atim = st.Mtim
	}
	for _, at := range []*sys.EpochNanos{&st.Atim, &st.Mtim, &st.Ctim} {
		if *at >= s.begun {
			*at = epoch
		}
	}
	return st
}

// Stat implements sys.FS.
func (s *steadyFS) Stat(path string) (sys.Stat_t, experimentalsys.Errno) {
	st, errno := s.FS.Stat(path)
	return s.steady(st), errno
}

// Lstat implements sys.FS.
func (s *steadyFS) Lstat(path string) (sys.Stat_t, experimentalsys.Errno) {
	st, errno := s.FS.Lstat(path)
	return s.steady(st), errno
}

// OpenFile implements sys.FS.
func (s *steadyFS) OpenFile(path string, flag experimentalsys.Oflag, perm fs.FileMode) (experimentalsys.File, experimentalsys.Errno) {
	f, errno := s.FS.OpenFile(path, flag, perm)
	if errno != 0 {
		return nil, errno
	}
	return &steadyFile{File: f, in: s}, 0
}

// steadyFile is an open file of a steadyFS.
type steadyFile struct {
	experimentalsys.File
	in *steadyFS
}

// Dev implements sys.File.
func (f *steadyFile) Dev() (uint64, experimentalsys.Errno) { return 1, 0 }

// Ino implements sys.File.
func (f *steadyFile) Ino() (sys.Inode, experimentalsys.Errno) {
	ino, errno := f.File.Ino()
	return f.in.number(ino), errno
}

// Stat implements sys.File.
func (f *steadyFile) Stat() (sys.Stat_t, experimentalsys.Errno) {
	st, errno := f.File.Stat()
	return f.in.steady(st), errno
}

// Readdir implements sys.File.
func (f *steadyFile) Readdir(n int) ([]experimentalsys.Dirent, experimentalsys.Errno) {
	entries, errno := f.File.Readdir(n)
	for i := range entries {
		entries[i].Ino = f.in.number(entries[i].Ino)
	}
	return entries, errno
}
