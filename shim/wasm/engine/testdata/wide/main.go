// Command wide tries much of Go's runtime and library and says what came of each part. What it says is the same for
// every platform. It can serve, so that it is compiled as a server is.
package main

import (
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
)

func main() {
	if len(os.Args) > 100 {
		serve()
	}
	for _, part := range []struct {
		name string
		run  func(io.Writer)
	}{
		{"numbers", numbers}, {"floats", floats}, {"big", bigNumbers}, {"sums", sums}, {"sorting", sorting}, {"text", text},
		{"json", inJSON}, {"formats", formats}, {"packing", packing}, {"source", source}, {"panics", panics}, {"stacks", stacks},
		{"goroutines", goroutines}, {"garbage", garbage}, {"types", types}, {"flow", flow},
		{"pictures", pictures},
	} {
		h := fnv.New64a()
		n := &count{}
		part.run(io.MultiWriter(h, n))
		fmt.Printf("%s: %d bytes, %016x\n", part.name, n.bytes, h.Sum64())
	}
}

// serve is never called, and known to the linker.
func serve() {
	l, err := net.FileListener(os.Stdin)
	if err == nil {
		_, _ = l.Accept()
	}
}

type count struct{ bytes int }

func (c *count) Write(p []byte) (int, error) { c.bytes += len(p); return len(p), nil }
