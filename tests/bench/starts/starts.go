// Package starts measures how long a guest takes until its first byte, as the container of a pod,
// and a process that it is compared with, by turns.
package starts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/measure"
)

// Face is the first argument of the process that starts guests, which is the benchmark's own
// program once more. Every child of it is reaped in one place, as in a shim. It calls Main.
const Face = "starts"

// Options say what is started.
type Options struct {
	Shim   string   // the shim's binary
	Dir    string   // for the cache and bundles
	Module string   // the file of the guest
	Digest string   // of the module, which a pod knows of its image; "" = the file is hashed at each start
	Peer   []string // the command that the guest is compared with
	Rounds int      // starts of each
	Guests int      // how many are idle at once, when their memory is measured
}

// Found is what was found of one module.
type Found struct {
	AtHand, Forked, Peer Spans
	Idle, IdlePeers      []float64 // MiB of idle processes
}

// Way is a way in which a guest's process comes into being.
type Way struct {
	Name string
	Spans
}

// Ways are those in which guests were started.
func (f Found) Ways() []Way {
	all := []Way{{"prewarmed", f.AtHand}, {"forked", f.Forked}}
	return slices.DeleteFunc(all, func(w Way) bool { return len(w.Took) == 0 })
}

// Spans are those of starts up to the first byte, in milliseconds: by the clock, and the
// processor's, which others on the machine disturb less.
type Spans struct{ Took, Used []float64 }

func (t *Spans) add(p *running) {
	t.Took = append(t.Took, float64(p.took.Microseconds())/1000)
	t.Used = append(t.Used, float64(p.used.Microseconds())/1000)
}

// Measure runs Main in a process of its own.
func Measure(ctx context.Context, o Options) (f Found, err error) {
	told, err := json.Marshal(o)
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", Face, string(told))
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(said, &f)
}

// Main measures one module by the Options in its argument, and prints what it found.
func Main(args []string, stdout, stderr io.Writer) int {
	var s starter
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &s.Options) != nil {
		return 2
	}
	f, err := s.measure(context.Background())
	if err == nil {
		err = json.NewEncoder(stdout).Encode(f)
	}
	if err != nil {
		fmt.Fprintln(stderr, "starts:", err)
		return 1
	}
	return 0
}

// measure starts processes in turn, then has many idle ones at once.
func (s *starter) measure(ctx context.Context) (f Found, err error) {
	if err := s.open(); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	kinds := []struct {
		start func(context.Context) (*running, error)
		times *Spans
	}{{s.guest, &f.Forked}, {s.peer, &f.Peer}, {s.ready, &f.AtHand}}
	if cgroups.IsCgroup2UnifiedMode() {
		kinds = kinds[:2] // no process is ever prewarmed
	}
	for round := -2; round < s.Rounds; round++ {
		for _, k := range kinds {
			p, err := k.start(ctx)
			if err != nil {
				return f, err
			}
			if round >= 0 { // those before fill caches
				k.times.add(p)
			}
			if err := p.end(); err != nil {
				return f, err
			}
		}
	}
	if f.Idle, err = s.idle(ctx, s.guest); err != nil {
		return f, err
	}
	f.IdlePeers, err = s.idle(ctx, s.peer)
	return f, err
}

// idle is the memory of each of many idle processes.
func (s *starter) idle(ctx context.Context, start func(context.Context) (*running, error)) (sizes []float64, err error) {
	var all []*running
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.end())
		}
	}()
	for range s.Guests {
		p, err := start(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if err := measure.Wait(ctx, 500*time.Millisecond); err != nil { // what they do after their first byte is done
		return nil, err
	}
	for _, p := range all {
		size, err := measure.PSS(p.pid)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, float64(size)/(1<<20))
	}
	return sizes, nil
}

// firstByte reads the first byte that comes through a pipe. More may come: it stays open.
func firstByte(from *os.File) error {
	if err := from.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := from.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("await its first byte: %w", err)
	}
	return nil
}

// pipe is a pipe whose end for the child blocks.
func pipe() (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output"), nil
}
