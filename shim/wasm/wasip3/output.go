package wasip3

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// output is a stream that the guest writes into an open file.
type output struct {
	shared  wasip2.Shared
	place   wasip2.Place
	outcome *outcome
	failure error // what it ended with
}

// WaitsFor implements async.Work.
func (s *output) WaitsFor() (wasi.Subscription, bool) {
	f := s.shared.File()
	return wasi.Subscription{File: f, Write: true}, f.Kind() == wasi.KindStream || f.Kind() == wasi.KindSocket
}

// Write implements async.Sink.
func (s *output) Write(b []byte) (int, error) {
	n, err := s.transfer(wasi.Buffers{}.Add(b[:min(len(b), maxMove)]))
	switch {
	case err == unix.EAGAIN:
		return n, nil
	case err == nil && n == 0:
		err = unix.EIO // the kernel takes nothing and says nothing
	}
	s.failure = err
	return n, err
}

// transfer writes once.
func (s *output) transfer(b wasi.Buffers) (int, error) {
	f := s.shared.File()
	if f.Kind() == wasi.KindDirectory {
		return 0, unix.EBADF
	}
	return s.place.Write(f, b, func(b wasi.Buffers) (int, error) {
		return without(f, func() (int, error) { return f.Write(b) })
	})
}

// Close implements async.Sink.
func (s *output) Close() {
	s.outcome.keep(s.failure)
	s.shared.Release()
}

// drain has the host read a stream of the guest's, and gives the future of how that ends.
func drain(c *canonical.Call, p []uint64, stream uint64, s *output) {
	async.Drain(c, stream, s)
	p[0] = uint64(s.outcome.give(c))
}

func writeStdio(number int) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		stream, err := wasip2.Of(c).ShareStdio(number)
		if err != nil {
			return err
		}
		drain(c, p, p[0], &output{shared: stream, outcome: cliOutcome()})
		return nil
	}
}

func writeViaStream(c *canonical.Call, p []uint64, _ uint32) error {
	drain(c, p, p[1], &output{shared: wasip2.ShareDescriptor(c, p[0]), place: wasip2.AtOffset(int64(p[2])), outcome: fileOutcome()})
	return nil
}

func appendViaStream(c *canonical.Call, p []uint64, _ uint32) error {
	drain(c, p, p[1], &output{shared: wasip2.ShareDescriptor(c, p[0]), place: wasip2.AtEnd(), outcome: fileOutcome()})
	return nil
}
