// Command greeter answers HTTP requests with a greeting that says where it runs. One source makes a
// Linux program and a WASI preview 1 guest:
//
//	CGO_ENABLED=0 GOOS=linux go build -o greeter .
//	GOOS=wasip1 GOARCH=wasm go build -o greeter.wasm .
package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "greeter:", err)
		os.Exit(1)
	}
}

func run() error {
	listener, err := listen(":" + env("PORT", "8080"))
	if err != nil {
		return err
	}
	fmt.Printf("greeter: listening as %s/%s\n", runtime.GOOS, runtime.GOARCH)

	// Linux tells a program to stop with SIGTERM. WASI preview 1 has no signals: there the runtime
	// stops giving out connections and Serve returns. A Go guest that waits for signals would also
	// never be idle.
	if runtime.GOOS != "wasip1" {
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
		go func() {
			<-stop
			listener.Close()
		}()
	}

	err = http.Serve(listener, http.HandlerFunc(greet))
	fmt.Println("greeter: stopping")
	if runtime.GOOS == "wasip1" || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// listen takes the listener that the runtime opened and announced with LISTEN_FDS, the first at
// file descriptor 3, and opens one itself without one.
func listen(address string) (net.Listener, error) {
	if os.Getenv("LISTEN_FDS") == "" {
		return net.Listen("tcp", address)
	}
	file := os.NewFile(3, "listener")
	defer file.Close()
	return net.FileListener(file)
}

func greet(w http.ResponseWriter, r *http.Request) {
	fmt.Printf("greeter: %s %s\n", r.Method, r.URL.Path)
	fmt.Fprintf(w, "%s from %s/%s on %s\n",
		env("GREETING", "Hello"), runtime.GOOS, runtime.GOARCH, env("HOSTNAME", "a host without a name"))
}

// env is the value of an environment variable, or other when it is not set or empty.
func env(name, other string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return other
}
