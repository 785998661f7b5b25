package run

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
)

// What one container has not taken of stdin is the next one's, and so is the end.
func TestInput(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	in := &input{from: from, chunks: make(chan []byte)}
	if _, err := io.WriteString(to, "onetwo"); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	buf := make([]byte, 3)
	first := in.until(ctx)
	if n, err := io.ReadFull(first, buf); err != nil || string(buf[:n]) != "one" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	end()
	if n, err := first.Read(buf); n > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after its end the first one reads %q, %v", buf[:n], err)
	}
	// One that waits for more leaves nothing out when it ends.
	ctx, end = context.WithCancel(t.Context())
	second := in.until(ctx)
	if n, err := io.ReadFull(second, buf); err != nil || string(buf[:n]) != "two" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	waited := make(chan error)
	go func() {
		_, err := second.Read(buf)
		waited <- err
	}()
	end()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("the second one's end: %v", err)
	}
	if _, err := io.WriteString(to, "three"); err != nil {
		t.Fatal(err)
	}
	to.Close()
	for _, want := range []string{"three", ""} {
		if rest, err := io.ReadAll(in.until(t.Context())); err != nil || string(rest) != want {
			t.Errorf("the next one reads %q, %v; want %q", rest, err, want)
		}
	}
}
