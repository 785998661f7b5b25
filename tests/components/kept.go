package components

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// kept makes the component of a source file, or takes the one that was made of the same: of these
// files, in this way, by the tools that are pinned. Making one of Python or JavaScript takes half a
// minute of a processor.
func (t Tools) kept(component, source string, files, way []string, build func() error) error {
	pins, err := filepath.Glob(filepath.Join(t.pins, "*"))
	if err != nil {
		return err
	}
	sum := sha256.New()
	for _, file := range append(slices.Clone(files), pins...) {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("make component of %q: %w", source, err)
		}
		fmt.Fprintf(sum, "%q %d\n", filepath.Base(file), len(data))
		sum.Write(data)
	}
	fmt.Fprintf(sum, "%q", way)
	folder, name := filepath.Join(t.pins, "../../.cache/components/made"), filepath.Base(source)
	path := filepath.Join(folder, name+"-"+hex.EncodeToString(sum.Sum(nil))+".wasm")
	err = copyFile(path, component)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := build(); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(folder, "tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := copyFile(component, filepath.Join(temp, name)); err != nil {
		return err
	}
	// Those of other contents are not needed any more.
	others, err := filepath.Glob(filepath.Join(folder, name+"-*"))
	for _, other := range others {
		err = errors.Join(err, os.RemoveAll(other))
	}
	return errors.Join(err, os.Rename(filepath.Join(temp, name), path))
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
