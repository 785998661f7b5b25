// Command gosuite holds the programs of the conformance suite: gosuite KIND [ARGUMENT].
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

func main() {
	args := append(os.Args[1:], "", "")
	n, _ := strconv.Atoi(args[1])
	switch args[0] {
	case "exit":
		os.Exit(n)
	case "echo":
		fmt.Print(args[1])
	case "sleep":
		fmt.Println("ready")
		time.Sleep(1000000 * time.Second)
	case "lines":
		for i := range n {
			fmt.Println("line", i)
		}
	case "env":
		fmt.Println(os.Getenv(args[1]))
	case "cat":
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(n)
	default:
		os.Exit(99)
	}
}
