// What a program in Go does with WASI 0.2 through the adapter.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

func check(what string, err error) {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		fmt.Println(what, path.Err)
	case errors.As(err, &link):
		fmt.Println(what, link.Err)
	default:
		fmt.Println(what, err)
	}
}

func main() {
	fmt.Println(os.Args[1:], os.Getenv("A"), len(os.Environ()))
	scanner := bufio.NewScanner(os.Stdin)
	lines := 0
	for scanner.Scan() {
		lines++
	}
	fmt.Fprintln(os.Stderr, lines, "lines", scanner.Err())
	var wait sync.WaitGroup
	ends := make(chan int, 10)
	for i := range 10 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			time.Sleep(time.Duration(i) * 20 * time.Millisecond)
			ends <- i
		}()
	}
	wait.Wait()
	close(ends)
	for i := range ends {
		fmt.Print(i, " ")
	}
	b := make([]byte, 32)
	n, err := rand.Read(b)
	fmt.Println(n, err)
	check("mkdir", os.MkdirAll("/home/a/b/c", 0o755))
	check("write", os.WriteFile("/home/a/b/c/file", []byte("content"), 0o600))
	data, err := os.ReadFile("/home/a/b/c/file")
	fmt.Println(string(data), err)
	_, err = os.ReadFile("/home/none")
	check("read", err)
	check("rename", os.Rename("/home/a/b/c/file", "/home/a/moved"))
	check("symlink", os.Symlink("moved", "/home/a/link"))
	target, err := os.Readlink("/home/a/link")
	fmt.Println(target, err)
	when := time.Unix(1234567890, 123456000)
	check("times", os.Chtimes("/home/a/moved", when, when))
	info, err := os.Stat("/home/a/link")
	fmt.Println(info.Name(), info.Size(), info.ModTime().UTC(), err)
	check("truncate", os.Truncate("/home/a/moved", 3))
	check("walk", filepath.WalkDir("/home", func(path string, e fs.DirEntry, err error) error {
		fmt.Println(path, e.IsDir(), err)
		return nil
	}))
	check("remove", os.RemoveAll("/home/a/b"))
	memory := map[int]string{}
	for i := range 100000 {
		memory[i] = fmt.Sprint(i)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"entries": len(memory), "last": memory[99999]})
	os.Exit(3)
}
