package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// LimitMemory limits the memory of a group by its directory in one hierarchy, 0 is no limit. It
// does nothing in a hierarchy without the controller.
func LimitMemory(dir string, unified bool, memory uint64) error {
	name, value := "memory.limit_in_bytes", "-1"
	if unified {
		name, value = "memory.max", "max"
	}
	if memory > 0 {
		value = strconv.FormatUint(memory, 10)
	}
	return set(dir, name, value)
}

// Weigh gives a group its weight, as version 1 counts, by its directory in one hierarchy. It does
// nothing in a hierarchy without the controller.
func Weigh(dir string, unified bool, shares uint64) error {
	if unified {
		return set(dir, "cpu.weight", strconv.FormatUint(Weight(shares), 10))
	}
	return set(dir, "cpu.shares", strconv.FormatUint(shares, 10))
}

// set writes a file of a cgroup's directory. Only the hierarchy of its controller has it: it must
// not be created where it is missing.
func set(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
