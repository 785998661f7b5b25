package wasip3

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// maxMove is how much one reading or writing of the guest's moves, in bytes.
const maxMove = 1 << 20

// input is a stream of an open file that the guest reads.
type input struct {
	shared  wasip2.Shared
	place   wasip2.Place
	outcome *outcome
	failure error // what it ended with
}

// WaitsFor implements async.Work.
func (s *input) WaitsFor() (wasi.Subscription, bool) {
	f := s.shared.File()
	return wasi.Subscription{File: f}, f.Kind() != wasi.KindFile && f.Kind() != wasi.KindNull
}

// Read implements async.Source.
func (s *input) Read(c *canonical.Call, at, n uint32) (uint32, error) {
	read, err := s.ReadBytes(c.View(at, uint64(min(n, maxMove))))
	return uint32(read), err
}

// ReadBytes implements async.Bytes.
func (s *input) ReadBytes(b []byte) (int, error) {
	n, err := s.transfer(wasi.Buffers{}.Add(b))
	switch {
	case err == unix.EAGAIN:
		return 0, nil
	case err != nil:
		s.failure = err
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// transfer reads once.
func (s *input) transfer(b wasi.Buffers) (int, error) {
	f := s.shared.File()
	return s.place.Read(f, b, func(b wasi.Buffers) (int, error) {
		return without(f, func() (int, error) { return f.Read(b) })
	})
}

// without does something with a file without waiting.
func without(f *wasi.File, do func() (int, error)) (int, error) {
	flags := f.Flags()
	if err := f.SetFlags(flags | wasi.Nonblock); err != nil {
		return 0, err
	}
	n, err := do()
	_ = f.SetFlags(flags) // Nonblock is known to File only, and cannot fail
	return n, err
}

// Close implements async.Source.
func (s *input) Close() {
	s.outcome.keep(s.failure)
	s.shared.Release()
}

// giveInput gives the guest a stream and the future of how it ends.
func giveInput(c *canonical.Call, out uint32, s *input) {
	c.Put32(out, async.NewStream(c, async.Byte, s))
	c.Put32(out+4, s.outcome.give(c))
}

func readStdin(c *canonical.Call, _ []uint64, out uint32) error {
	stdin, err := wasip2.Of(c).ShareStdio(0)
	if err != nil {
		return err
	}
	giveInput(c, out, &input{shared: stdin, outcome: cliOutcome()})
	return nil
}

func readViaStream(c *canonical.Call, p []uint64, out uint32) error {
	s := &input{shared: wasip2.ShareDescriptor(c, p[0]), place: wasip2.AtOffset(int64(p[1])), outcome: fileOutcome()}
	giveInput(c, out, s)
	return nil
}
