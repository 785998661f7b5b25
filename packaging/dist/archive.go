package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeArchive writes the files below tree as a compressed tar, in one folder called top. Owner,
// time and order are the same for everybody.
func writeArchive(file, tree, top string, date time.Time) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zip)
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error { // in the order of names
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.Join(top, rel), Mode: int64(info.Mode().Perm()), ModTime: date, Format: tar.FormatUSTAR}
		if d.IsDir() {
			header.Typeflag, header.Name, header.Mode = tar.TypeDir, header.Name+"/", 0o755
			return w.WriteHeader(header)
		}
		header.Typeflag, header.Size = tar.TypeReg, info.Size()
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(w, in)
		return err
	})
	return errors.Join(err, w.Close(), zip.Close())
}

// writeSums writes the checksums of the named files of a folder, as sha256sum -c reads them.
func writeSums(folder string, names []string) error {
	names = slices.Sorted(slices.Values(names))
	var text strings.Builder
	for _, name := range names {
		sum, err := sumOf(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(text.String()), 0o644)
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
