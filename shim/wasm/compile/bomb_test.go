package compile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// sized is a vector's or a body's length and content.
func sized(content []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(content))), content...)
}

// bomb is a module of many functions that have many variables, which are joined at many places.
func bomb(functions, variables, places int) []byte {
	var body []byte
	body = append(body, 1)
	body = append(binary.AppendUvarint(body, uint64(variables)), 0x7f) // so many i32
	for i := range places {
		variable := binary.AppendUvarint(nil, uint64(i%variables))
		body = append(body, 0x03, 0x40)                                  // loop
		body = append(append(body, 0x20), variable...)                   // local.get
		body = append(append(body, 0x41, 0x01, 0x6a, 0x22), variable...) // i32.const 1, i32.add, local.tee
		body = append(body, 0x0d, 0x00, 0x0b)                            // br_if 0, end
	}
	body = sized(append(body, 0x0b))
	count := binary.AppendUvarint(nil, uint64(functions))
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		encode(1, 1, 0x60, 0, 0),
		encode(3, append(count, make([]byte, functions)...)...),
		encode(7, append([]byte{1, 6}, "_start\x00\x00"...)...),
		encode(10, append(bytes.Clone(count), bytes.Repeat(body, functions)...)...),
	}, nil)
}

// TestCompileBombs compiles what takes more than it may, by limits that are soon reached. Nothing
// is left of it.
func TestCompileBombs(t *testing.T) {
	for name, c := range map[string]struct {
		may    limits
		module []byte
	}{
		"time":   {limits{seconds: 1, data: ample(0).data}, bomb(1000, 2000, 2000)},
		"memory": {limits{seconds: ample(0).seconds, data: 160 << 20}, bomb(20, 10000, 10000)},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{CacheDir: t.TempDir(), limits: c.may}
			_, err := Ensure(context.Background(), o, writeModule(t, c.module), "")
			if !errors.Is(err, errdefs.ErrResourceExhausted) {
				t.Errorf("a module of %d bytes: %v", len(c.module), err)
			}
			if got := names(t, o.CacheDir); len(got) != 0 {
				t.Errorf("cache holds %v", got)
			}
		})
	}
}

// TestBombsThatAreNone compiles a little one of the same make.
func TestBombsThatAreNone(t *testing.T) {
	if _, err := Ensure(context.Background(), Options{CacheDir: t.TempDir()}, writeModule(t, bomb(3, 4, 5)), ""); err != nil {
		t.Error(err)
	}
}

// With little memory, garbage is collected before it takes all: the same module takes less. What
// qemu-user takes for itself would count too (tests/arches).
func TestLittleMemory(t *testing.T) {
	module := writeModule(t, bomb(30000, 4, 4))
	peak := map[uint64]int64{}
	for _, memory := range []uint64{0, 16 << 20} {
		o := Options{CacheDir: t.TempDir(), Memory: memory, Start: func(cmd *exec.Cmd) (func() int, error) {
			wait, err := startPlain(cmd)
			if err != nil {
				return nil, err
			}
			most := make(chan int64)
			go func() { most <- mostMemory(cmd.Process.Pid) }()
			return func() int {
				code := wait()
				peak[memory] = <-most
				return code
			}, nil
		}}
		if _, err := Ensure(t.Context(), o, module, ""); err != nil {
			t.Fatal(err)
		}
	}
	if peak[16<<20] == 0 || peak[16<<20] > peak[0]*5/6 {
		t.Errorf("with 16 MiB a compilation took %d KiB, without a limit %d", peak[16<<20], peak[0])
	}
}

// mostMemory follows a process until it ends, and returns the most memory that it has had at once,
// in KiB. What wait4 says of that is at least what the process had that started it.
func mostMemory(pid int) (most int64) {
	for ; ; time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, found := strings.Cut(string(status), "VmHWM:")
		if err != nil || !found { // ended
			return most
		}
		var now int64
		if _, err := fmt.Sscan(rest, &now); err != nil {
			return most
		}
		most = max(most, now)
	}
}
