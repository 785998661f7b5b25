package run

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"
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
	first := in.until(ctx, false)
	if n, err := io.ReadFull(first, buf); err != nil || string(buf[:n]) != "one" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	end()
	if n, err := first.Read(buf); n > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after its end the first one reads %q, %v", buf[:n], err)
	}
	// One that waits for more leaves nothing out when it ends.
	ctx, end = context.WithCancel(t.Context())
	second := in.until(ctx, false)
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
		if rest, err := io.ReadAll(in.until(t.Context(), false)); err != nil || string(rest) != want {
			t.Errorf("the next one reads %q, %v; want %q", rest, err, want)
		}
	}
}

// TestStreamsOfARestart has a container start again while the streams of its last run have not
// ended: they end one after the other.
func TestStreamsOfARestart(t *testing.T) {
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	a := &attached{runner: &runner{}, tell: make(chan struct{}, 1), ctx: ctx, cut: cut}
	first, second := a.expect(ctx), make(chan *streamsEnd)
	go func() { second <- a.expect(ctx) }()
	select {
	case <-second:
		t.Fatal("two at once")
	case <-time.After(20 * time.Millisecond):
	}
	a.end(first, nil)
	if over := <-second; over == first || !a.busy() {
		t.Error("the second run has the streams of the first")
	} else {
		a.end(over, nil)
	}
	if a.busy() {
		t.Error("streams are left")
	}
}
