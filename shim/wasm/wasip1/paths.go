package wasip1

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// pathOf returns the directory of a path function and the path.
func (h *Host) pathOf(mem api.Memory, fd, offset, length uint64, need rights) (*wasi.Dir, string, error) {
	d, err := h.table.directory(fd, need)
	if err != nil {
		return nil, "", err
	}
	path, err := Text(mem, offset, length)
	return d, path, err
}

// onPath is a function that does something with a path, for which it needs a right.
func onPath(need rights, do func(*wasi.Dir, string) error) func(*Host, api.Memory, []uint64) error {
	return func(h *Host, mem api.Memory, p []uint64) error {
		d, path, err := h.pathOf(mem, p[0], p[1], p[2], need)
		if err != nil {
			return err
		}
		return do(d, path)
	}
}

func pathSymlink(h *Host, mem api.Memory, p []uint64) error {
	text, err := Text(mem, p[0], p[1])
	if err != nil {
		return err
	}
	d, path, err := h.pathOf(mem, p[2], p[3], p[4], rightPathSymlink)
	if err != nil {
		return err
	}
	return d.Symlink(text, path)
}

func pathRename(h *Host, mem api.Memory, p []uint64) error {
	from, path, err := h.pathOf(mem, p[0], p[1], p[2], rightPathRenameSource)
	if err != nil {
		return err
	}
	to, newPath, err := h.pathOf(mem, p[3], p[4], p[5], rightPathRenameTarget)
	if err != nil {
		return err
	}
	return from.Rename(path, to, newPath)
}

func pathLink(h *Host, mem api.Memory, p []uint64) error {
	follow, err := getLookup(p[1])
	if err != nil {
		return err
	}
	from, path, err := h.pathOf(mem, p[0], p[2], p[3], rightPathLinkSource)
	if err != nil {
		return err
	}
	to, newPath, err := h.pathOf(mem, p[4], p[5], p[6], rightPathLinkTarget)
	if err != nil {
		return err
	}
	return from.Link(path, follow, to, newPath)
}

// pathReadlink gives as much of a link's text as there is room for.
func pathReadlink(h *Host, mem api.Memory, p []uint64) error {
	d, path, err := h.pathOf(mem, p[0], p[1], p[2], rightPathReadlink)
	if err != nil {
		return err
	}
	out, err := Record(mem, p[3], int(uint32(p[4])))
	if err != nil {
		return err
	}
	result, err := Record(mem, p[5], 4)
	if err != nil {
		return err
	}
	n, err := d.Readlink(path, out)
	if err != nil {
		return err
	}
	put32(result, uint32(n))
	return nil
}
