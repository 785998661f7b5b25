// Command server is the HTTP server that make bench-wasm asks: one source, built for Linux and as a
// guest. It answers every request with a few bytes and writes nothing.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
)

func main() {
	listener, err := listen()
	if err == nil {
		fmt.Println("up")
		err = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "Hello from a pod.\n") // a client that went away is no error
		}))
	}
	fmt.Fprintln(os.Stderr, "server:", err)
	os.Exit(1)
}

// listen takes the listener that a guest finds open, or opens one. That of stock wazero would block
// the whole guest.
func listen() (net.Listener, error) {
	if os.Getenv("LISTEN_FDS") == "" {
		return net.Listen("tcp", ":8080")
	}
	if err := syscall.SetNonblock(3, true); err != nil {
		return nil, err
	}
	file := os.NewFile(3, "listener")
	defer file.Close()
	return net.FileListener(file)
}
