// Program uses what Go's library needs of the host, then counts its standard input.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func expect(err, want error) {
	if !errors.Is(err, want) {
		fmt.Fprintf(os.Stderr, "got %v, want %v\n", err, want)
		os.Exit(1)
	}
}

func main() {
	check(os.MkdirAll("/a/b/c", 0o755))
	check(os.WriteFile("/a/b/file", []byte("content"), 0o644))
	b, err := os.ReadFile("/a/../a/b/file")
	check(err)
	check(os.Rename("/a/b/file", "/a/moved"))
	check(os.Symlink("moved", "/a/link"))
	target, err := os.Readlink("/a/link")
	check(err)
	linked, err := os.ReadFile("/a/link")
	check(err)
	_, err = os.Stat("/none")
	expect(err, fs.ErrNotExist)
	expect(os.Mkdir("/a", 0o755), fs.ErrExist)
	f, err := os.OpenFile("/a/moved", os.O_RDWR|os.O_APPEND, 0)
	check(err)
	_, err = f.WriteString(" more")
	check(err)
	check(f.Truncate(9))
	info, err := f.Stat()
	check(err)
	check(f.Sync())
	check(f.Close())
	when := time.Unix(1000, 5)
	check(os.Chtimes("/a/moved", when, when))
	info2, err := os.Stat("/a/moved")
	check(err)
	count := 0
	check(filepath.WalkDir("/", func(string, fs.DirEntry, error) error { count++; return nil }))
	check(os.RemoveAll("/a"))
	time.Sleep(5 * time.Millisecond)
	fmt.Println(string(b), target, string(linked), info.Size(), info2.ModTime().UnixNano(), count)

	ticker := time.NewTicker(time.Millisecond)
	ticks := make(chan int)
	go func() {
		for range 10 {
			<-ticker.C
		}
		ticks <- 10
	}()
	fmt.Println(<-ticks)
	n, err := io.Copy(io.Discard, os.Stdin)
	check(err)
	fmt.Println("input:", n)
}
