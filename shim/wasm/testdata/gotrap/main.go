// Command gotrap ends in the way that its argument names, a few calls deep.
package main

import (
	"errors"
	"os"
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
	case "deadlock":
		select {}
	}
}

func main() {
	choose(os.Args[1])
	os.Exit(98)
}
