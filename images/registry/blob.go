package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/trace"
)

// errNoRanges is the end of a part whose server gives only the whole.
var errNoRanges = errors.New("the server does not give parts of a blob")

// Fetch opens a manifest or blob from an offset on. The content is not verified here, but its
// length is: the reader ends with io.EOF only at desc.Size, or where every try ended. A transfer
// that breaks off is continued, so that an error of the reader is one that remains. While other
// blobs wait, a blob comes by turns.
//
// # Errors
//
// See Error; reading gives the same errors. A transfer that stalls ends as an unreachable registry
// does; one that is announced with a wrong length is ErrDataLoss.
func (r *Repository) Fetch(ctx context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if data, ok := r.remembered(desc.Digest); ok && offset <= int64(len(data)) {
		return io.NopCloser(bytes.NewReader(data[offset:])), nil
	}
	ctx, span := trace.Start(ctx, "fetch from registry")
	span.Text(trace.Digest, desc.Digest.String())
	span.Text("oci.media_type", desc.MediaType)
	span.Text("server.address", r.domain)
	return trace.Transfer(span, func() (io.ReadCloser, error) { return r.fetch(ctx, desc, offset) })
}

func (r *Repository) fetch(ctx context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if images.IsManifestType(desc.MediaType) || images.IsIndexType(desc.MediaType) {
		s := r.newStream(ctx, desc, offset, desc.Size)
		s.path = "manifests/" + desc.Digest.String()
		s.accept = desc.MediaType + ", */*"
		return s, s.start()
	}
	return r.fetchBlob(ctx, desc, offset)
}

// stream reads a blob, or a part of it, over as many requests as it takes.
type stream struct {
	r            *Repository
	ctx          context.Context
	desc         ocispec.Descriptor
	path, accept string
	pos, end     int64 // what is to be read
	ranges       bool  // ask for a range
	deaf         bool  // the server answers ranges with errors
	insist       bool  // end with errNoRanges rather than read what is not wanted
	body         *body // nil between two requests
	skip         int64 // bytes of the body that come before pos
	open         bool  // the body ends where the server says, not at a length announced
	failures     int   // in a row, without a byte
	short        bool  // the last one was an end that came too early
}

func (r *Repository) newStream(ctx context.Context, desc ocispec.Descriptor, from, to int64) *stream {
	return &stream{
		r: r, ctx: ctx, desc: desc, pos: from, end: to,
		path:   "blobs/" + desc.Digest.String(),
		ranges: from > 0 || to < desc.Size,
	}
}

// start makes the first request. Without one the stream is closed.
func (s *stream) start() error {
	if s.pos >= s.end && s.pos > 0 {
		return nil // all of it is there
	}
	if err := s.request(); err != nil {
		s.Close()
		return s.r.wrap(s.ctx, s.r.doing(s.desc), err)
	}
	return nil
}

// request makes a request for what is left.
func (s *stream) request() error {
	c := call{method: http.MethodGet, path: s.path, accept: s.accept, digest: s.desc.Digest}
	if s.ranges {
		c.ranged, c.from, c.to = true, s.pos, s.end-1
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	resp, e, err := s.r.do(ctx, c)
	if code, ok := statusOf(err); ok && code == http.StatusRequestedRangeNotSatisfiable && c.ranged {
		cancel(nil)
		return s.whole()
	}
	if err != nil {
		cancel(nil)
		return err
	}
	b := watch(ctx, resp.Body, cancel, s.r.client.options.StallTimeout)
	s.r.noteServed(s.desc.Digest, e)
	if s.skip, err = s.place(resp); err != nil {
		b.Close()
		if errors.Is(err, errBadRange) {
			return s.whole()
		}
		return err
	}
	s.body, s.open = b, resp.ContentLength < 0
	return nil
}

// whole asks for all of a blob from a server that does not understand ranges.
func (s *stream) whole() error {
	if s.insist {
		return errNoRanges
	}
	if !s.ranges {
		return errBadRange
	}
	s.ranges, s.deaf = false, true
	return s.request()
}

var errBadRange = errors.New("the server gave another part than was asked for")

// place returns how many bytes of an answer come before those wanted.
//
// # Errors
//
// ErrDataLoss if the answer's length is not that of the blob.
func (s *stream) place(resp *http.Response) (skip int64, err error) {
	total := resp.ContentLength
	if resp.StatusCode == http.StatusPartialContent {
		var from, to int64
		if n, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &total); err != nil && n < 2 || from != s.pos || to < from {
			return 0, errBadRange
		} else if n == 2 {
			total = -1 // "*"
		}
	} else {
		if s.insist {
			return 0, errNoRanges
		}
		skip = s.pos
	}
	if total >= 0 && total != s.desc.Size {
		return 0, wrongLength(s.desc, total)
	}
	return skip, nil
}

func wrongLength(desc ocispec.Descriptor, announced int64) error {
	what := "truncated"
	if announced > desc.Size {
		what = "corrupt"
	}
	return fmt.Errorf("blob %s is %s: the server announces %d bytes, the manifest says %d: %w",
		desc.Digest, what, announced, desc.Size, errdefs.ErrDataLoss)
}

func (s *stream) Read(p []byte) (int, error) {
	for {
		if s.pos >= s.end {
			return 0, s.surplus()
		}
		if s.body == nil {
			if err := s.request(); errors.Is(err, errNoRanges) {
				return 0, err
			} else if err != nil {
				return 0, s.r.wrap(s.ctx, s.r.doing(s.desc), err)
			}
		}
		n, err := s.take(p)
		if n > 0 {
			return n, nil // the error comes again
		}
		if err == nil {
			continue
		}
		s.closeBody()
		if err == io.EOF && s.short {
			return 0, io.EOF // twice at the same byte: there is no more
		}
		s.short = err == io.EOF
		if s.ctx.Err() != nil || !s.short && (s.failures >= s.r.client.options.Retries || !mayPass(err)) {
			return 0, s.r.wrap(s.ctx, s.r.doing(s.desc), err)
		}
		if err := s.r.client.options.Sleep(s.ctx, backoff(s.failures)); err != nil {
			return 0, s.r.wrap(s.ctx, s.r.doing(s.desc), err)
		}
		s.failures++
		s.ranges = s.ranges || s.pos > 0 && !s.deaf
	}
}

// take reads bytes that are wanted from the body.
func (s *stream) take(p []byte) (int, error) {
	var err error
	for s.skip > 0 && err == nil {
		var n int
		n, err = s.body.Read(p[:min(int64(len(p)), s.skip)])
		s.skip -= int64(n)
	}
	if err == nil {
		var n int
		n, err = s.body.Read(p[:min(int64(len(p)), s.end-s.pos)])
		if n > 0 {
			s.pos += int64(n)
			s.failures, s.short = 0, false
			return n, nil
		}
	}
	if errors.Is(context.Cause(s.body.ctx), errStalled) {
		err = errStalled
	}
	return 0, err
}

// surplus is what is to be said at the end: io.EOF, unless the server continues.
func (s *stream) surplus() error {
	if s.body == nil || !s.open || s.end < s.desc.Size {
		return io.EOF
	}
	s.open = false
	if n, _ := s.body.Read(make([]byte, 1)); n > 0 {
		return fmt.Errorf("blob %s is corrupt: it is longer than %d bytes: %w", s.desc.Digest, s.desc.Size, errdefs.ErrDataLoss)
	}
	return io.EOF
}

func (s *stream) closeBody() {
	if s.body != nil {
		s.body.Close()
		s.body = nil
	}
}

func (s *stream) Close() error {
	s.closeBody()
	return nil
}
