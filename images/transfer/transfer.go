// Package transfer brings content from one source, a repository of a registry or an archive, into
// the store: pinned, verified, metered and within the budget.
package transfer

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/store"
)

// Source is where content comes from: a repository of a registry, or an archive.
type Source interface {
	// Fetch opens content from an offset on.
	Fetch(ctx context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error)
	// Refuse takes content from where it came from as wrong, and reports whether
	// there is another place to fetch it from.
	Refuse(d digest.Digest) bool
	// Served names the places that content came from.
	Served() map[digest.Digest]string
}

// Partial is a source that may lack what it refers to.
type Partial interface{ Has(digest.Digest) bool }

// Transfer is one run of fetching from one source. Everything it touches is pinned until it is
// closed.
type Transfer struct {
	Source Source
	// Meter counts bytes; nil = they are not counted.
	Meter *progress.Meter
	// Fetched adds up the bytes that were read of the source; nil = they are not added up.
	Fetched *atomic.Int64
	// Shown is what the source has shown that it holds.
	Shown Shown

	content *store.Content
	room    *Room
	pinned  []digest.Digest
	unpin   []func()

	// Guarded by room.mu; reserved are bytes of the budget.
	reserving, recorded, closed bool
	reserved                    int64
}

// New starts a transfer.
func New(content *store.Content, room *Room, from Source, m *progress.Meter) *Transfer {
	return &Transfer{Source: from, Meter: m, content: content, room: room}
}

// Close gives up the pins and the room that was taken.
func (x *Transfer) Close() {
	for _, f := range x.unpin {
		f()
	}
	x.unpin = nil
	x.release()
}

// Recorded closes the transfer after what came has been recorded: it keeps its room.
func (x *Transfer) Recorded() {
	x.room.mu.Lock()
	x.recorded = true
	x.room.mu.Unlock()
	x.Close()
}

// Pin pins content until Close.
func (x *Transfer) Pin(ds ...digest.Digest) {
	x.pinned = append(x.pinned, ds...)
	x.OnClose(x.content.Pin(ds...))
}

// Pinned is all content that has been given to Pin.
func (x *Transfer) Pinned() []digest.Digest { return x.pinned }

// OnClose has Close call a function, such as one that gives up a pin.
func (x *Transfer) OnClose(f func()) { x.unpin = append(x.unpin, f) }

// Document brings a manifest, index or configuration in and returns it.
func (x *Transfer) Document(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if err := manifest.CheckDocument(desc); err != nil {
		return nil, err
	}
	x.Pin(desc.Digest)
	if err := x.Ingest(ctx, desc, func(int64) {}); err != nil {
		return nil, err
	}
	return x.content.Document(ctx, desc)
}

// Ingest brings a blob that is pinned into the store and reports bytes as they come, those of an
// earlier try too. If what one server sends is damaged, another one is asked.
func (x *Transfer) Ingest(ctx context.Context, desc ocispec.Descriptor, got func(int64)) error {
	return x.ingest(ctx, x.content.Ingest, desc, got)
}

// IngestPassing does so for a blob that is of no use once it has been read: see
// store.Content.IngestPassing.
func (x *Transfer) IngestPassing(ctx context.Context, desc ocispec.Descriptor, got func(int64)) error {
	return x.ingest(ctx, x.content.IngestPassing, desc, got)
}

// ingest does so by one of the store's two ways.
func (x *Transfer) ingest(ctx context.Context, into func(context.Context, ocispec.Descriptor, store.Opener) error, desc ocispec.Descriptor, got func(int64)) error {
	for {
		came, own := int64(0), int64(0) // own came in this transfer
		count := func(n int64) {
			came += n
			got(n)
		}
		err := into(ctx, desc, func(ctx context.Context, offset int64) (io.ReadCloser, error) {
			r, err := x.Source.Fetch(ctx, desc, offset)
			if err != nil {
				return nil, err
			}
			count(offset - came)
			return &countedReader{r, func(n int64) { own += n; count(n); x.fetched(n) }}, nil
		})
		if err == nil {
			x.Shown.Note(desc, own)
		}
		// A context that has ended may say so by another blob's error.
		if ctx.Err() != nil || !errdefs.IsDataLoss(err) || !x.Source.Refuse(desc.Digest) {
			return err
		}
		count(-came)
	}
}

func (x *Transfer) fetched(n int64) {
	if x.Fetched != nil {
		x.Fetched.Add(n)
	}
}

type countedReader struct {
	io.ReadCloser
	got func(int64)
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.got(int64(n))
	return n, err
}

// Count returns a function that adds received bytes to a part of the meter.
func (x *Transfer) Count(d digest.Digest) func(int64) {
	return func(n int64) {
		x.Meter.Part(d, func(p *progress.Progress, part *progress.Part) {
			p.Bytes += n
			part.Bytes += n
		})
	}
}

// enough is how many bytes of a blob a repository has to give to show that it holds the blob, where
// the others had come already: too many to be guessed.
const enough = 4 << 10

// Shown is what the source of a transfer has shown that it holds: what this transfer fetched from
// there and found to be what it was named. A name alone shows nothing, and neither does an answer
// without the content: the registry may be of anybody's making.
type Shown struct {
	came sync.Map // blobs
	made sync.Map // diff ids that a blob unpacked to in this transfer
}

// Note takes note of a blob of which n bytes came in this transfer.
func (s *Shown) Note(d ocispec.Descriptor, n int64) {
	if n >= min(d.Size, enough) {
		s.came.Store(d.Digest, true)
	}
}

// NoteUnpacked takes note of what a blob that came in this transfer unpacked to.
func (s *Shown) NoteUnpacked(diff digest.Digest) { s.made.Store(diff, true) }

// Has reports whether the source has shown a blob, and what it unpacks to unless that is "".
func (s *Shown) Has(blob, diff digest.Digest) bool {
	_, came := s.came.Load(blob)
	_, made := s.made.Load(diff)
	return came && (diff == "" || made)
}
