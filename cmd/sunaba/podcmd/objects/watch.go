package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/host/clock"
	"github.com/sunaba-project/sunaba/pods/api"
)

// askAgain is the pause after a server went away, as while it is being restarted.
const askAgain = 500 * time.Millisecond

// errMet ends a watch.
var errMet = errors.New("met")

// Until watches the objects of one name until they are as is says, or ctx ends. A server that goes
// away is asked again.
func Until(ctx context.Context, c *api.Client, t Target, namespace string, is func(now []json.RawMessage) bool) error {
	for {
		var now []json.RawMessage
		listed := false
		err := c.Watch(ctx, t.Resource, api.Query{Namespace: namespace, Name: t.Name}, func(change api.Change) error {
			if change.Type == api.Listed {
				listed = true
			} else {
				now = slices.DeleteFunc(now, func(raw json.RawMessage) bool { return UID(raw) == UID(change.Object) })
			}
			if change.Type == api.Added || change.Type == api.Modified {
				now = append(now, bytes.Clone(change.Object))
			}
			if listed && is(now) {
				return errMet
			}
			return nil
		})
		switch {
		case errors.Is(err, errMet):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errdefs.IsUnavailable(err):
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits before a server that went away is asked again, or until ctx ends.
func pause(ctx context.Context) error {
	return clock.Sleep(ctx, askAgain)
}

// Follow calls changed for each object that there is, then with api.Listed, then for each change,
// until ctx ends or changed returns an error, which it returns. A server that goes away is asked
// again, which is written to say; changed is told then what differs from what it was told.
func Follow(ctx context.Context, c *api.Client, r api.Resource, q api.Query, say io.Writer, changed func(api.Change) error) error {
	f := follower{changed: changed, say: say, known: map[string]json.RawMessage{}}
	for {
		f.listed = map[string]bool{}
		err := c.Watch(ctx, r, q, f.take)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !f.complete || !errdefs.IsUnavailable(err):
			return err
		case !f.away:
			fmt.Fprintln(say, "sunaba: the server went away, waiting for it to come back")
			f.away = true
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

type follower struct {
	changed  func(api.Change) error
	say      io.Writer
	known    map[string]json.RawMessage // what was told, by namespace, name and UID
	listed   map[string]bool            // of those, what this connection has listed
	complete bool                       // the first list was
	away     bool
}

func (f *follower) take(change api.Change) error {
	if change.Type == api.Listed {
		return f.end(change)
	}
	key := key(change.Object)
	before, known := f.known[key]
	switch {
	case change.Type == api.Deleted:
		delete(f.known, key)
		return f.changed(change)
	case known && change.Type == api.Added:
		change.Type = api.Modified
	}
	f.known[key], f.listed[key] = bytes.Clone(change.Object), true
	if bytes.Equal(before, change.Object) {
		return nil
	}
	return f.changed(change)
}

// end is the end of a list: what is not in it, but was told, is deleted.
func (f *follower) end(change api.Change) error {
	if !f.complete {
		f.complete = true
		return f.changed(change)
	}
	f.away = false
	fmt.Fprintln(f.say, "sunaba: the server is back")
	for _, key := range slices.Sorted(maps.Keys(f.known)) {
		if f.listed[key] {
			continue
		}
		gone := api.Change{Type: api.Deleted, Object: f.known[key]}
		delete(f.known, key)
		if err := f.changed(gone); err != nil {
			return err
		}
	}
	return nil
}

func key(raw json.RawMessage) string {
	var m metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &m) != nil {
		return string(raw)
	}
	return m.Namespace + "/" + m.Name + "/" + string(m.UID)
}

func UID(raw json.RawMessage) string {
	var m metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &m) != nil {
		return ""
	}
	return string(m.UID)
}
