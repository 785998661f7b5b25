// What a program in Go does with WASI 0.2 through the adapter. It stays small: Go grows its memory
// over the state that the adapter keeps there, also under wasmtime.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	begun := time.Now()
	time.Sleep(20 * time.Millisecond)
	fmt.Println(time.Since(begun) >= 20*time.Millisecond)
	ends := make(chan int)
	go func() { ends <- 7 }()
	fmt.Println(<-ends)
	_, err := os.Stat("/home/none")
	check("stat", err)
	os.Exit(3)
}
