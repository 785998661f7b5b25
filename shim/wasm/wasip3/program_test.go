package wasip3_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// read reads testdata/async.wasm, which is async.wat by wasm-tools 1.262.0: parse, then strip -a.
// wasmtime runs it with the same output, by -W component-model-async -S p3.
func read(t testing.TB) []byte {
	t.Helper()
	file, err := os.ReadFile("testdata/async.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// runText runs a component and returns its exit code, its standard output and the error of a trap.
func runText(t testing.TB, file []byte) (uint32, string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	g := guest{file: file, args: []string{"async"}, stdio: [3]*os.File{null, w, w}, root: t.TempDir()}
	code, err := g.run(t)
	w.Close()
	text, readErr := io.ReadAll(r)
	if readErr != nil {
		t.Fatal(readErr)
	}
	return code, string(text), err
}

// TestProgram runs a command that uses subtasks, streams, futures and sets, and checks what they
// answer.
func TestProgram(t *testing.T) {
	start := time.Now()
	code, text, err := runText(t, read(t))
	if code != 0 || text != "it works\n" || err != nil {
		t.Errorf("exit code %d, output %q, %v", code, text, err)
	}
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("took %v, and waits for 20ms", took)
	}
}

// Traps of what a guest must not do: variants of the program by one replacement of bytes, which end
// with a text.
func TestProgramTraps(t *testing.T) {
	// (call $context-set (i32.const 41)), and what is called in its place: imports by their numbers.
	const place = "\x41\x29\x10\x19"
	for name, c := range map[string]struct{ code, want string }{
		"unknown set":        {"\x41\x29\x10\x15", "waitable-set.drop: unknown handle index 41"},
		"unknown subtask":    {"\x41\x29\x10\x17", "subtask.drop: unknown handle index 41"},
		"set as a subtask":   {"\x41\x01\x10\x17", "subtask.drop: handle index 1 used with the wrong type"},
		"set as a stream":    {"\x41\x01\x10\x0c", "handle index 1 used with the wrong type"},
		"unknown stream":     {"\x41\x29\x10\x05", "stream.drop-writable:1.1.n: unknown handle index 41"},
		"unknown future end": {"\x41\x29\x10\x12", "future.drop-writable:8.8.n: unknown handle index 41"},
	} {
		t.Run(name, func(t *testing.T) {
			file := read(t)
			if bytes.Count(file, []byte(place)) != 1 {
				t.Fatalf("the place is there %d times", bytes.Count(file, []byte(place)))
			}
			code, text, err := runText(t, bytes.Replace(file, []byte(place), []byte(c.code), 1))
			if code != exitTrap || text != "" || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("exit code %d, output %q, %v, want %q", code, text, err, c.want)
			}
		})
	}
}
