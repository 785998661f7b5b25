package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askAgain):
		}
	}
}

func UID(raw json.RawMessage) string {
	var m metav1.PartialObjectMetadata
	if json.Unmarshal(raw, &m) != nil {
		return ""
	}
	return string(m.UID)
}
