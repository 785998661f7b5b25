package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/host/unixsocket/unixhttp"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 256 << 20

// Client uses an agent through its socket. Its methods may be called at the same time.
type Client struct{ http *unixhttp.Client }

// Connect connects to an agent's socket, whose path may be of any length. The caller closes the
// client.
//
// # Errors
//
// ErrUnavailable if no agent serves there.
func Connect(ctx context.Context, path string) (*Client, error) {
	client, err := unixhttp.Connect(ctx, path)
	if errdefs.IsUnavailable(err) {
		return nil, fmt.Errorf("no server answers on %q: start one with \"sunaba serve\", or give --state: %w", path, errdefs.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// Close closes the connections.
func (c *Client) Close() error { return c.http.Close() }

// List is a list of objects. Each is JSON, with its kind.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Items           []json.RawMessage `json:"items"`
}

// List lists the objects of a kind.
func (c *Client) List(ctx context.Context, r Resource, q Query) (List, error) {
	return call[List](ctx, c, http.MethodGet, "objects/"+r.Plural+"?"+q.encode().Encode(), nil)
}

// Objects lists the objects of a kind, decoded.
func Objects[T any](ctx context.Context, c *Client, r Resource, q Query) ([]T, error) {
	l, err := c.List(ctx, r, q)
	if err != nil {
		return nil, err
	}
	return Decode[T](l)
}

// Decode decodes the objects of a list.
func Decode[T any](l List) ([]T, error) {
	all := make([]T, len(l.Items))
	for n, raw := range l.Items {
		if err := json.Unmarshal(raw, &all[n]); err != nil {
			return nil, fmt.Errorf("read %s: %w", l.Kind, err)
		}
	}
	return all, nil
}

// Watch calls changed for each object of a kind that there is, then with Listed, then for each
// change, until ctx or the server ends or changed returns an error, which it returns.
func (c *Client) Watch(ctx context.Context, r Resource, q Query, changed func(Change) error) error {
	resp, err := c.send(ctx, http.MethodGet, "watch/"+r.Plural+"?"+q.encode().Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := refused(resp); err != nil {
		return err
	}
	lines := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var change Change
		if err := lines.Decode(&change); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("watch %s: the server ended it: %w: %w", r.Plural, err, errdefs.ErrUnavailable)
		}
		if err := changed(change); err != nil {
			return err
		}
	}
}

// Describe is a pod with its events. It fails with ErrNotFound if the pod does not exist.
func (c *Client) Describe(ctx context.Context, namespace, name string) (Description, error) {
	return call[Description](ctx, c, http.MethodGet, "describe/"+url.PathEscape(namespace)+"/"+url.PathEscape(name), nil)
}

// Apply is Agent.Apply.
func (c *Client) Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error) {
	return call[ApplyResult](ctx, c, http.MethodPost, "apply", r)
}

// Delete is Agent.Delete.
func (c *Client) Delete(ctx context.Context, r DeleteRequest) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "delete", r)
	return err
}

// Restart is Agent.Restart.
func (c *Client) Restart(ctx context.Context, r RestartRequest) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "restart", r)
	return err
}

// Debug is Agent.Debug.
func (c *Client) Debug(ctx context.Context, r DebugRequest) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "debug", r)
	return err
}

// Shutdown is Shutdowner.Shutdown, which may take long, or CancelShutdown.
func (c *Client) Shutdown(ctx context.Context, r ShutdownRequest) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "shutdown", r)
	return err
}

// Server tells where the server's other sockets are.
func (c *Client) Server(ctx context.Context) (ServerInfo, error) {
	return call[ServerInfo](ctx, c, http.MethodGet, "v1/server", nil)
}

func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		data = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://pods/"+path, data)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("ask the server: %w: %w", err, errdefs.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	return resp, nil
}

// call sends a request and reads its answer.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var v T
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if err := refused(resp); err != nil {
		return v, err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&v); err != nil {
		return v, fmt.Errorf("read the server's answer: %w", err)
	}
	return v, nil
}

// refused is the error with which the server answered, nil if it did not.
func refused(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var f failure
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&f); err != nil || f.Error == "" {
		return fmt.Errorf("ask the server: it answers %s: %w", resp.Status, errhttp.ToNative(resp.StatusCode))
	}
	return &remote{f.Error, errhttp.ToNative(resp.StatusCode)}
}

// Usage is what the running containers of pods use now.
func (c *Client) Usage(ctx context.Context) ([]ContainerUsage, error) {
	return call[[]ContainerUsage](ctx, c, http.MethodGet, "usage", nil)
}
