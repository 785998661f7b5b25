package disk

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Image is an ext4 in a file, mounted on a folder, whose power can be cut.
type Image struct{ File, Dir string }

// NewImage makes and mounts one below a folder. What is not synced stays in memory for long.
func NewImage(parent string) (*Image, error) {
	f, err := os.CreateTemp(parent, "disk-*.img")
	if err != nil {
		return nil, err
	}
	d := &Image{File: f.Name()}
	defer f.Close()
	if err := f.Truncate(96 << 20); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.File).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	if d.Dir, err = os.MkdirTemp(parent, "disk-"); err != nil {
		return nil, err
	}
	return d, d.mount()
}

func (d *Image) mount() error {
	if out, err := exec.Command("mount", "-o", "loop,commit=300", d.File, d.Dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// Sync writes everything, as time would have done.
func (d *Image) Sync() error {
	f, err := os.Open(d.Dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// Cut copies what of the disk has reached it at one moment. A copy during which something was
// written is made again: parts of different age are what no loss of power leaves.
func (d *Image) Cut() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(d.Dir, &st); err != nil {
		return "", err
	}
	writes := func() (string, bool) {
		data, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
		fields := strings.Fields(string(data)) // Documentation/block/stat.rst
		if err != nil || len(fields) < 9 {
			return "", false
		}
		return fields[4], fields[8] == "0"
	}
	file := d.File + ".cut"
	for range 200 {
		before, idle := writes()
		if err := copySparse(file, d.File); err != nil {
			return "", err
		}
		if after, still := writes(); idle && still && before == after {
			return file, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return "", fmt.Errorf("disk %q is written all the time", d.File)
}

func copySparse(to, from string) error {
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

// Exchange puts the copy in the place of the disk, as if the machine had started again.
func (d *Image) Exchange(file string) error {
	if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount disk: %w", err)
	}
	if err := os.Rename(file, d.File); err != nil {
		return err
	}
	return d.mount()
}
