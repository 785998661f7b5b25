package registry

import (
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// taking is the transfer of a blob over as many turns as it takes.
type taking struct {
	r     *Repository
	ctx   context.Context
	desc  ocispec.Descriptor
	pos   int64
	turn  *turn
	inner io.ReadCloser   // of this turn
	now   context.Context // of this turn
	end   context.CancelCauseFunc
}

// fetchBlob waits for a turn and starts.
func (r *Repository) fetchBlob(ctx context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	t := &taking{r: r, ctx: ctx, desc: desc, pos: offset, turn: &turn{registry: r.domain, pull: r}}
	if err := t.start(); err != nil {
		return nil, err
	}
	return t, nil
}

// start opens what is left, in a turn that lasts for long enough to do so.
func (t *taking) start() error {
	for {
		t.now, t.end = context.WithCancelCause(t.ctx)
		if err := t.r.client.turns.take(t.ctx, t.turn, func() { t.end(errGiveWay) }); err != nil {
			t.end(nil)
			return t.r.wrap(t.ctx, t.r.doing(t.desc), err)
		}
		err := t.open()
		if err == nil {
			return nil
		}
		over := t.over()
		t.leave()
		if !over {
			return err
		}
	}
}

func (t *taking) open() (err error) {
	s := t.r.newStream(t.now, t.desc, t.pos, t.desc.Size)
	if least := t.r.client.options.RangeThreshold; least > 0 && t.desc.Size-t.pos >= least {
		t.inner, err = t.r.fetchParts(s)
		return err
	}
	t.inner = s
	return s.start()
}

// over reports whether this turn has been ended, and nothing else.
func (t *taking) over() bool {
	return t.ctx.Err() == nil && errors.Is(context.Cause(t.now), errGiveWay)
}

func (t *taking) leave() {
	t.end(nil)
	t.r.client.turns.leave(t.turn)
}

func (t *taking) Read(p []byte) (int, error) {
	for {
		n, err := t.inner.Read(p)
		if n > 0 {
			t.pos += int64(n)
			t.r.client.turns.count(t.turn, n)
			return n, nil // the error comes again
		}
		if err == nil || err == io.EOF || !t.over() {
			return 0, err
		}
		if err := errors.Join(t.inner.Close(), t.next()); err != nil {
			return 0, err
		}
	}
}

func (t *taking) next() error {
	t.leave()
	return t.start()
}

// Close ends the transfer.
func (t *taking) Close() error {
	err := t.inner.Close()
	t.leave()
	return err
}
