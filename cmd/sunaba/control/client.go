package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/sunaba-project/sunaba/host/unixsocket/unixhttp"
	"github.com/sunaba-project/sunaba/images"
)

// Client uses the store of a server.
type Client struct{ http *unixhttp.Client }

var _ Store = (*Client)(nil)

// Connect connects to a server's socket.
//
// # Errors
//
// ErrUnavailable if no server listens there.
func Connect(ctx context.Context, path string) (*Client, error) {
	client, err := unixhttp.Connect(ctx, path)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// Close closes the connections.
func (c *Client) Close() error { return c.http.Close() }

func (c *Client) post(ctx context.Context, what string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://images/"+what, body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	return resp, nil
}

// call sends a request and reads its reply.
func call[T any](ctx context.Context, c *Client, what string, r request, progress func(images.Progress)) (T, error) {
	var none T
	data, err := json.Marshal(r)
	if err != nil {
		return none, err
	}
	resp, err := c.post(ctx, what, bytes.NewReader(data))
	if err != nil {
		return none, err
	}
	return reply[T](resp, progress)
}

// reply reads lines up to the last.
func reply[T any](resp *http.Response, progress func(images.Progress)) (T, error) {
	defer resp.Body.Close()
	var none T
	lines := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var l line[T]
		if err := lines.Decode(&l); err != nil {
			return none, fmt.Errorf("the server's reply breaks off (%s): %w", resp.Status, err)
		}
		switch {
		case l.Progress != nil:
			if progress != nil {
				progress(*l.Progress)
			}
		case l.Error != nil && l.Result != nil:
			return *l.Result, l.Error.err()
		case l.Error != nil:
			return none, l.Error.err()
		case l.Result != nil:
			return *l.Result, nil
		default:
			return none, errors.New("the server's reply has an empty line")
		}
	}
}

// Pull is images.Service.Pull.
func (c *Client) Pull(ctx context.Context, req images.PullRequest) (images.Image, error) {
	auth, err := json.Marshal(req.Auth)
	if err != nil {
		return images.Image{}, err
	}
	return call[images.Image](ctx, c, "pull", request{Name: req.Ref, Handler: req.Handler, Namespace: req.Namespace, Auth: auth}, req.Progress)
}

// List is images.Service.List.
func (c *Client) List(ctx context.Context) ([]images.Image, error) {
	return call[[]images.Image](ctx, c, "list", request{}, nil)
}

// Find is images.Service.Find.
func (c *Client) Find(ctx context.Context, nameOrID, handler string) (images.Image, error) {
	return call[images.Image](ctx, c, "find", request{Name: nameOrID, Handler: handler}, nil)
}

// Remove is images.Service.Remove.
func (c *Client) Remove(ctx context.Context, nameOrID string) error {
	_, err := call[struct{}](ctx, c, "remove", request{Name: nameOrID}, nil)
	return err
}

// Untag is images.Service.Untag.
func (c *Client) Untag(ctx context.Context, nameOrID string, force bool) (removed bool, err error) {
	return call[bool](ctx, c, "untag", request{Name: nameOrID, Force: force}, nil)
}

// Push is images.Service.Push.
func (c *Client) Push(ctx context.Context, req images.PushRequest) (images.Pushed, error) {
	auth, err := json.Marshal(req.Auth)
	if err != nil {
		return images.Pushed{}, err
	}
	return call[images.Pushed](ctx, c, "push", request{Name: req.Source, Dest: req.Dest, All: req.All, Auth: auth}, req.Progress)
}

// Tag is images.Service.Tag.
func (c *Client) Tag(ctx context.Context, source string, names []string) error {
	_, err := call[struct{}](ctx, c, "tag", request{Name: source, Names: names}, nil)
	return err
}

// Check is images.Service.Check.
func (c *Client) Check(ctx context.Context, repair bool) (images.CheckReport, error) {
	return call[images.CheckReport](ctx, c, "check", request{Repair: repair}, nil)
}

// GC is images.Service.GC.
func (c *Client) GC(ctx context.Context, dryRun bool) (images.Garbage, error) {
	return call[images.Garbage](ctx, c, "gc", request{DryRun: dryRun}, nil)
}

// Import is images.Service.Import. A path is read by the server, from the same file system.
func (c *Client) Import(ctx context.Context, req images.ImportRequest) ([]images.Image, error) {
	if req.Path != "" {
		path, err := filepath.Abs(req.Path)
		if err != nil {
			return nil, err
		}
		return call[[]images.Image](ctx, c, "import", request{Path: path, Name: req.Name, Handler: req.Handler}, req.Progress)
	}
	resp, err := c.post(ctx, "import-stream?"+url.Values{"name": {req.Name}, "handler": {req.Handler}}.Encode(), req.Reader)
	if err != nil {
		return nil, err
	}
	return reply[[]images.Image](resp, req.Progress)
}

// ExportTo is images.Service.ExportTo.
func (c *Client) ExportTo(ctx context.Context, names []string, w io.Writer) error {
	resp, err := c.stream(ctx, "export", request{Names: names})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("write images: %w", err)
	}
	return nil
}

// ReadModule is images.Service.ReadModule.
func (c *Client) ReadModule(ctx context.Context, nameOrID, handler string, read func(images.ModuleFile, io.Reader) error) error {
	resp, err := c.stream(ctx, "module", request{Name: nameOrID, Handler: handler})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var file images.ModuleFile
	if err := json.Unmarshal([]byte(resp.Header.Get(moduleHeader)), &file); err != nil {
		return fmt.Errorf("read the server's reply: %w", err)
	}
	return read(file, resp.Body)
}

// stream asks for bytes; the caller closes their body.
func (c *Client) stream(ctx context.Context, what string, r request) (*http.Response, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	resp, err := c.post(ctx, what, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_, err := reply[struct{}](resp, nil)
		return nil, err
	}
	return resp, nil
}
