// Command gotrap ends in the way that its argument names, a few calls deep.
package main

import (
	"errors"
	"os"
	"strconv"
)

type node struct{ next *node }

//go:noinline
func follow(n *node) *node { return n.next.next }

//go:noinline
func beyond(list []int, i int) int { return list[i] }

//go:noinline
func choose(way string) {
	switch way {
	case "panic":
		panic(errors.New("so it is"))
	case "nil":
		follow(&node{})
	case "index":
		beyond(nil, 7)
	case "fill":
		mib, _ := strconv.Atoi(os.Args[2])
		var kept [][]byte
		for range mib {
			block := make([]byte, 1<<20)
			for at := 0; at < len(block); at += 4096 {
				block[at] = 1
			}
			kept = append(kept, block)
		}
		println("kept", len(kept))
		os.Stdout.WriteString("filled\n")
		os.Exit(0)
	case "deadlock":
		select {}
	}
}

func main() {
	choose(os.Args[1])
	os.Exit(98)
}
