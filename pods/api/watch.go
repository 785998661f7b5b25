package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of a Change.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	// Listed follows the objects that were there when the watch started. It has no object.
	Listed = "BOOKMARK"
)

// watchPause is the least time between two looks of a watch, so that a busy node is not slowed by
// those who look at it.
const watchPause = 50 * time.Millisecond

// Change is one line of a watch.
type Change struct {
	Type string `json:"type"`
	// Object is as it is now, or as it was last if it is deleted.
	Object json.RawMessage `json:"object,omitempty"`
}

// watch answers with a line for each object, and then for each change, until the client leaves.
func (s *service) watch(w http.ResponseWriter, r *http.Request) {
	resource, f, err := wanted(r)
	if err != nil {
		refuse(w, err)
		return
	}
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		refuse(w, errBusy("watch "+resource.Plural, maxWatches))
		return
	}
	control := http.NewResponseController(w)
	// The server's own times are for requests that end.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	seen := &view{lines: json.NewEncoder(w), before: map[string]json.RawMessage{}}
	for first := true; ; first = false {
		changed := s.agent.Watch()
		if err := control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
			return
		}
		if err := seen.look(items(s.agent, resource), resource, f); err != nil {
			panic(http.ErrAbortHandler)
		}
		if first && seen.lines.Encode(Change{Type: Listed}) != nil {
			return
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(watchPause):
		}
	}
}

// view is what a client of a watch knows.
type view struct {
	lines  *json.Encoder
	before map[string]json.RawMessage // by namespace, name and UID
}

// look tells what differs from the last look.
func (v *view) look(all []item, r Resource, f *filter) error {
	now := make(map[string]json.RawMessage, len(v.before))
	var order []string
	for _, i := range all {
		if !f.matches(i) {
			continue
		}
		raw, err := encodeItem(i, r, f.Values)
		if err != nil {
			return err
		}
		key := i.namespace + "/" + i.name + "/" + uid(i)
		now[key] = raw
		order = append(order, key)
	}
	for key, raw := range v.before {
		if now[key] == nil {
			if err := v.lines.Encode(Change{Type: Deleted, Object: raw}); err != nil {
				return err
			}
		}
	}
	for _, key := range order {
		c := Change{Type: Modified, Object: now[key]}
		switch before := v.before[key]; {
		case before == nil:
			c.Type = Added
		case bytes.Equal(before, now[key]):
			continue
		}
		if err := v.lines.Encode(c); err != nil {
			return err
		}
	}
	v.before = now
	return nil
}

// uid tells objects of one name apart.
func uid(i item) string {
	if o, ok := i.value.(metav1.Object); ok {
		return string(o.GetUID())
	}
	return ""
}
