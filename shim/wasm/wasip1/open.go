package wasip1

import (
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// request is what path_open is asked for.
type request struct {
	oflags           uint16
	flags            wasi.Flags
	base, inheriting rights
}

func pathOpen(h *Host, d *descriptor, mem api.Memory, p []uint64) error {
	// Check the descriptor's existence and type before its rights: a file is ENOTDIR.
	dir, err := d.file.AsDir()
	if err != nil {
		return err
	}
	path, err := Text(mem, p[2], p[3])
	if err != nil {
		return err
	}
	out, err := Record(mem, p[8], 4)
	if err != nil {
		return err
	}
	follow, err := getLookup(p[1])
	if err != nil {
		return err
	}
	flags, err := getFlags(p[7])
	if err != nil {
		return err
	}
	if uint32(p[4])&^uint32(openAll) != 0 {
		return unix.EINVAL
	}
	r := request{oflags: uint16(p[4]), flags: flags, base: rights(p[5]) & rightsAll, inheriting: rights(p[6]) & rightsAll}
	if err := d.permits(r); err != nil {
		return err
	}
	f, err := dir.Open(path, r.options(follow))
	if err != nil {
		return err
	}
	number, err := h.table.addOpened(d, f, r)
	if err != nil {
		return err
	}
	put32(out, number)
	return nil
}

// permits checks the rights that the flags need beyond path_open itself.
func (d *descriptor) permits(r request) error {
	var need, pass rights
	if r.oflags&openCreate != 0 {
		need |= rightPathCreateFile
	}
	if r.oflags&openTruncate != 0 {
		need |= rightPathFilestatSetSize
	}
	if r.flags&wasi.Dsync != 0 {
		pass |= rightFdDatasync
	}
	if r.flags&(wasi.Sync|wasi.Rsync) != 0 {
		pass |= rightFdSync
	}
	if r.oflags&(openCreate|openTruncate) != 0 {
		pass |= r.base & rightsFile // nothing else is created or cut off
	}
	if d.base&need != need || d.inheriting&pass != pass {
		return errNotCapable
	}
	return nil
}

// options are how to open the path.
func (r request) options(follow bool) wasi.OpenOptions {
	return wasi.OpenOptions{
		Read:      r.base&(rightFdRead|rightFdReaddir) != 0,
		Write:     r.base&rightFdWrite != 0,
		Follow:    follow,
		Create:    r.oflags&openCreate != 0,
		Exclusive: r.oflags&openExclusive != 0,
		Truncate:  r.oflags&openTruncate != 0,
		Directory: r.oflags&openDirectory != 0,
		Flags:     r.flags,
	}
}

// addOpened gives the guest a file that it opened below d, with those of the rights it asked for
// that the file has a use for.
func (t *table) addOpened(d *descriptor, f *wasi.File, r request) (uint32, error) {
	base := r.base & able(f)
	inheriting := rights(0)
	if f.Kind() == wasi.KindDirectory {
		inheriting = r.inheriting
	}
	if (base|inheriting)&^d.inheriting != 0 {
		f.Close()
		return 0, errNotCapable
	}
	return t.add(f, base, inheriting)
}
