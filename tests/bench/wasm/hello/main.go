// Command hello is the Go guest whose start and memory make bench-wasm measures: it says that it is
// up, and sleeps.
package main

import (
	"os"
	"time"
)

func main() {
	_, _ = os.Stdout.WriteString("up\n") // whoever waits for it notices
	for {
		time.Sleep(time.Hour)
	}
}
