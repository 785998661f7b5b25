// Package verdicts makes events of what is decided about manifest files.
package verdicts

import (
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/events"
	"github.com/sunaba-project/sunaba/pods/desired"
)

// Reasons of events about manifest files (B.8), and of what is ignored in them.
const (
	Loaded  = "ManifestLoaded"
	Refused = "ManifestRefused"
	Ignored = "Ignored"
)

// mostIgnored bounds the events about what is ignored in one file.
const mostIgnored = 20

// Record records the events of verdicts, from the oldest to the newest.
func Record(store *events.Store, list []desired.Verdict, now time.Time) {
	for _, v := range list {
		// Two folders may have files of one name: the path tells them apart.
		ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Manifest", Name: filepath.Base(v.Path), FieldPath: v.Path}
		for _, e := range eventsOf(ref, v, store.Newest(ref, now, Loaded, Refused)) {
			store.Record(e, now)
		}
	}
}

// eventsOf are the events of a verdict about a file whose last one is known, nil for none. A file
// that an earlier run left as it is has none.
func eventsOf(ref corev1.ObjectReference, v desired.Verdict, last *corev1.Event) []events.Event {
	if v.Status == desired.Refused {
		e := events.Event{Object: ref, Type: corev1.EventTypeWarning, Reason: Refused, Message: v.Message}
		if v.LastGood {
			e.Message += "; the last good version stays in use"
		}
		if v.Again && last != nil && last.Reason == e.Reason && last.Message == events.Shorten(e.Message) {
			return nil
		}
		return []events.Event{e}
	}
	if v.Again && (last == nil || last.Reason == Loaded) {
		return nil
	}
	list := []events.Event{{
		Object: ref, Type: corev1.EventTypeNormal, Reason: Loaded, Message: fmt.Sprintf("Loaded %d objects", v.Objects),
	}}
	notes := v.Notes
	if len(notes) > mostIgnored {
		notes = append(notes[:mostIgnored:mostIgnored], "More is ignored, see: sunaba describe manifest/"+ref.Name)
	}
	for _, note := range notes {
		list = append(list, events.Event{Object: ref, Type: corev1.EventTypeNormal, Reason: Ignored, Message: note})
	}
	return list
}
