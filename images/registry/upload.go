package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxLocation bounds the address of an upload, in bytes.
	maxLocation = 8 << 10
	// leastChunk is the smallest chunk that is tried where the registry says that one is too large.
	leastChunk = 512 << 10
)

// Blob is a blob to push.
type Blob struct {
	Desc ocispec.Descriptor
	// Open opens the content from an offset on.
	Open func(offset int64) (io.ReadCloser, error)
	// From is another repository of the registry that may have the blob, "" for none.
	From string
	// Sent is called with bytes as they are sent, and with a negative number for those that have to
	// be sent again.
	Sent func(int64)
}

// sending is a blob on its way.
type sending struct {
	Blob
	chunk int64 // bytes that one request has at most

	mu      sync.Mutex
	counted int64
	parts   int // that were opened: what the transport still reads of an earlier one is not counted
}

// count makes it known that so many bytes are sent.
func (b *sending) count(have int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts++
	b.set(have)
}

func (b *sending) set(have int64) {
	if have != b.counted {
		b.Sent(have - b.counted)
		b.counted = have
	}
}

// PushBlob uploads a blob, or has the registry mount it from b.From, and reports whether it did the
// latter. An upload that breaks off is continued or, where the registry does not know it any more,
// made anew.
//
// # Errors
//
// See Error; ErrDataLoss if the registry has stored something else.
func (r *Repository) PushBlob(ctx context.Context, b Blob) (mounted bool, err error) {
	mounted, err = r.pushBlob(r.pushing(ctx), &sending{Blob: b, chunk: r.client.options.Chunk})
	if err != nil {
		return false, r.wrap(ctx, fmt.Sprintf("push %s to %q", b.Desc.Digest, r.ref), err)
	}
	return mounted, nil
}

func (r *Repository) pushBlob(ctx context.Context, b *sending) (mounted bool, err error) {
	from := b.From
	for try := 0; ; {
		u := &upload{r: r, ctx: ctx}
		if mounted, err = u.start(b.Desc.Digest, from); err == nil && !mounted {
			err = u.content(b)
		}
		code, _ := statusOf(err)
		switch {
		case err == nil:
			b.count(b.Desc.Size)
			return mounted, nil
		case ctx.Err() != nil:
			return false, err
		case from != "" && u.at == nil && !mayPass(err): // it does not mount
			from = ""
			continue
		case code == http.StatusRequestEntityTooLarge && b.smaller():
			u.cancel()
			continue
		case u.at == nil, !mayPass(err) && code != http.StatusNotFound && code != http.StatusRequestedRangeNotSatisfiable, try >= r.client.options.Retries:
			if try > 0 {
				err = &triedError{err, try + 1}
			}
			return false, err
		}
		b.count(0)
		if err := r.client.options.Sleep(ctx, backoff(try)); err != nil {
			return false, err
		}
		try++
		// It may be that only the answer was lost.
		if has, err := r.has(ctx, "blobs/", b.Desc); err == nil && has {
			b.count(b.Desc.Size)
			return false, nil
		}
	}
}

// smaller makes the chunks of a blob smaller, and reports whether they were not the smallest yet.
func (b *sending) smaller() bool {
	chunk := min(b.chunk, b.Desc.Size)
	if chunk <= leastChunk {
		return false
	}
	b.chunk = max(chunk/8, leastChunk)
	return true
}

// upload is one upload session of a registry.
type upload struct {
	r     *Repository
	ctx   context.Context
	e     *endpoint
	at    *url.URL // where it continues; nil before it has started
	least int64    // bytes that a chunk has at least, except the last one
}

// start opens a session, unless the registry mounts the blob from another repository: then it is
// done. from is "" for no other repository.
func (u *upload) start(blob digest.Digest, from string) (done bool, err error) {
	c := call{method: http.MethodPost, path: "blobs/uploads/", push: true}
	ctx := u.ctx
	if from != "" {
		c.query = url.Values{"mount": {blob.String()}, "from": {from}}
		ctx = docker.ContextWithAppendPullRepositoryScope(ctx, from) // the token may pull from there too
	}
	resp, e, err := u.r.do(ctx, c)
	if err != nil {
		return false, err
	}
	resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusCreated && from != "":
		return true, checkStored(resp, blob)
	case resp.StatusCode != http.StatusAccepted:
		return false, fmt.Errorf("the registry answers %s where an upload is to start: %w", resp.Status, errdefs.ErrFailedPrecondition)
	}
	u.e = e
	if n, err := strconv.ParseInt(resp.Header.Get("OCI-Chunk-Min-Length"), 10, 64); err == nil && n > 0 {
		u.least = n
	}
	return false, u.follow(resp)
}

// follow takes the address of the next request of a session from an answer.
func (u *upload) follow(resp *http.Response) error {
	text := resp.Header.Get("Location")
	if text == "" || len(text) > maxLocation {
		return fmt.Errorf("the registry names an upload by an address of %d bytes: %w", len(text), errdefs.ErrFailedPrecondition)
	}
	to, err := resp.Request.URL.Parse(text)
	if err != nil || to.User != nil || to.Host == "" {
		return fmt.Errorf("the registry names an upload by what is no address: %w", errdefs.ErrFailedPrecondition)
	}
	if err := mayFollow(resp.Request.URL, to, call{}, 0); err != nil {
		return err
	}
	u.at = to
	return nil
}

// ask makes one request of the session.
func (u *upload) ask(c call) (*http.Response, error) {
	c.at = cmp.Or(c.at, u.at)
	c.path, c.push = "blobs/uploads/", true
	return u.r.ask(u.ctx, u.e, c)
}

// content sends a blob: all of it in one request if it is not larger than a chunk.
func (u *upload) content(b *sending) error {
	pos := int64(0)
	if b.Desc.Size > b.chunk {
		best := pos // what the registry has had at most
		for failures := 0; pos < b.Desc.Size; {
			next, err := u.patch(b, pos)
			if err == nil {
				if pos = next; pos > best {
					best, failures = pos, 0
				}
				continue
			}
			code, _ := statusOf(err)
			if u.ctx.Err() != nil || failures >= u.r.client.options.Retries || !mayPass(err) && code != http.StatusRequestedRangeNotSatisfiable {
				return err
			}
			if err := u.r.client.options.Sleep(u.ctx, backoff(failures)); err != nil {
				return err
			}
			failures++
			if pos, err = u.position(b.Desc.Size); err != nil {
				return err
			}
			b.count(pos)
		}
	}
	to := *u.at
	if to.RawQuery != "" {
		to.RawQuery += "&"
	}
	to.RawQuery += url.Values{"digest": {b.Desc.Digest.String()}}.Encode()
	resp, err := u.ask(call{method: http.MethodPut, at: &to, send: b.part(pos, b.Desc.Size)})
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the registry answers %s at the end of an upload: %w", resp.Status, errdefs.ErrFailedPrecondition)
	}
	return checkStored(resp, b.Desc.Digest)
}

// patch sends a chunk and returns where the next one starts.
func (u *upload) patch(b *sending, pos int64) (int64, error) {
	end := min(pos+max(b.chunk, min(u.least, b.Desc.Size)), b.Desc.Size)
	part := b.part(pos, end)
	part.span = fmt.Sprintf("%d-%d", pos, end-1)
	resp, err := u.ask(call{method: http.MethodPatch, send: part})
	if err != nil {
		return 0, err
	}
	if err := u.follow(resp); err != nil {
		return 0, err
	}
	if have, ok := received(resp); ok && (have <= pos || have > end || end-pos >= 8*(have-pos)) {
		return 0, fmt.Errorf("the registry has bytes up to %d of an upload where those from %d to %d were sent: %w", have, pos, end, errdefs.ErrDataLoss)
	} else if ok {
		end = have
	}
	b.count(end)
	return end, nil
}

// position asks how many bytes the registry has.
func (u *upload) position(size int64) (int64, error) {
	resp, err := u.ask(call{method: http.MethodGet})
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	have, _ := received(resp)
	if have > size {
		return 0, fmt.Errorf("the registry has %d bytes of an upload of %d: %w", have, size, errdefs.ErrDataLoss)
	}
	if resp.Header.Get("Location") == "" {
		return have, nil
	}
	return have, u.follow(resp)
}

// cancel gives a session up. A registry that does not take that forgets it by itself.
func (u *upload) cancel() {
	if u.at == nil {
		return
	}
	resp, err := u.ask(call{method: http.MethodDelete})
	if err == nil {
		resp.Body.Close()
	}
}

// received reads from an answer how many bytes an upload has.
func received(resp *http.Response) (int64, bool) {
	from, to, ok := strings.Cut(strings.TrimPrefix(resp.Header.Get("Range"), "bytes="), "-")
	end, err := strconv.ParseInt(to, 10, 64)
	if !ok || err != nil || from != "0" || end < 0 {
		return 0, false
	}
	if end == 0 && resp.Request.Method == http.MethodGet {
		return 0, true // some say 0-0 for nothing; a byte that is sent again does no harm at the start
	}
	return end + 1, true
}

// part is the payload of some bytes of a blob.
func (b *sending) part(from, to int64) *payload {
	return &payload{mediaType: "application/octet-stream", size: to - from, open: func() (io.ReadCloser, error) {
		content, err := b.Open(from)
		if err != nil {
			return nil, errors.Join(errLocal, err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.parts++
		return &partReader{io.LimitReader(content, to-from), content, b, b.parts, from}, nil
	}}
}

// errLocal says that reading content on this node failed.
var errLocal = errors.New("read what is to be pushed")

// partReader counts the bytes that a request takes.
type partReader struct {
	io.Reader
	io.Closer
	b    *sending
	part int
	pos  int64
}

func (r *partReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.pos += int64(n)
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.part == r.b.parts {
		r.b.set(r.pos)
	}
	return n, err
}
