// Package events keeps what happened to pods, files and the node for a while, as an API server does
// with Event objects: the same happening is counted, not listed again.
package events

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

const (
	// capacity is how many events are kept, keepFor how long since they last happened.
	capacity = 1000
	keepFor  = time.Hour
	// maxMessage bounds a message, in bytes, as the API server does.
	maxMessage = 1024
	// maxFile bounds what is read back.
	maxFile = 16 << 20
)

// Event is something that happened once.
type Event struct {
	// Object is what it happened to.
	Object corev1.ObjectReference
	// Type is corev1.EventTypeNormal or EventTypeWarning.
	Type, Reason, Message string
}

// same is what makes two events one.
type same struct {
	kind, namespace, name, field string
	uid                          types.UID
	kindOf, reason, message      string
}

// Store keeps the newest events. Its methods may be called at the same time.
type Store struct {
	path, host string
	changed    func()

	mu     sync.Mutex
	byKey  map[same]*corev1.Event
	serial uint64
	dirty  bool
}

// Open returns a store that continues with what the file at path holds, if it can be read: events are
// no more than a memory aid. host is the node's name, changed is called after each change.
func Open(path, host string, now time.Time, changed func()) *Store {
	s := &Store{path: path, host: host, changed: changed, byKey: map[same]*corev1.Event{}}
	_ = durable.Sweep(filepath.Dir(path)) // what a killed server left of a file that it wrote; a memory aid is no reason to fail
	data, err := regular.Read(path, maxFile)
	if err != nil {
		return s
	}
	var list []*corev1.Event
	if json.Unmarshal(data, &list) != nil {
		return s
	}
	for _, e := range list {
		if e == nil || now.Sub(e.LastTimestamp.Time) > keepFor || len(s.byKey) == capacity {
			continue
		}
		version, _ := strconv.ParseUint(e.ResourceVersion, 10, 64)
		s.serial = max(s.serial+1, version) // what comes is newer than all of them
		s.byKey[keyOf(e.InvolvedObject, e.Type, e.Reason, e.Message)] = e
	}
	return s
}

func keyOf(o corev1.ObjectReference, kind, reason, message string) same {
	return same{o.Kind, o.Namespace, o.Name, o.FieldPath, o.UID, kind, reason, message}
}

// Record keeps an event that happened now, or counts it if the same is kept.
func (s *Store) Record(e Event, now time.Time) {
	e.Message = Shorten(e.Message)
	s.mu.Lock()
	k := keyOf(e.Object, e.Type, e.Reason, e.Message)
	at := metav1.NewTime(now.Truncate(time.Second))
	s.serial++
	if old := s.byKey[k]; old != nil && now.Sub(old.LastTimestamp.Time) <= keepFor {
		counted := old.DeepCopy() // what was given out is never changed
		counted.Count++
		counted.LastTimestamp = at
		counted.ResourceVersion = strconv.FormatUint(s.serial, 10)
		s.byKey[k] = counted
	} else {
		s.byKey[k] = s.event(e, at, now)
		s.trim(now)
	}
	s.dirty = true
	s.mu.Unlock()
	if s.changed != nil {
		s.changed()
	}
}

// event makes the object of one that is new. Its name is made as a kubelet makes it: of the
// object's name and the time.
func (s *Store) event(e Event, at metav1.Time, now time.Time) *corev1.Event {
	namespace := e.Object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s.%x", e.Object.Name, now.UnixNano()+int64(s.serial%1000)), Namespace: namespace,
			CreationTimestamp: at, ResourceVersion: strconv.FormatUint(s.serial, 10),
		},
		InvolvedObject: e.Object, Type: e.Type, Reason: e.Reason, Message: e.Message,
		Source:         corev1.EventSource{Component: "sunaba", Host: s.host},
		FirstTimestamp: at, LastTimestamp: at, Count: 1, ReportingController: "sunaba", ReportingInstance: s.host,
	}
}

// trim forgets what is too old, then the oldest of what is too much.
func (s *Store) trim(now time.Time) {
	for k, e := range s.byKey {
		if now.Sub(e.LastTimestamp.Time) > keepFor {
			delete(s.byKey, k)
		}
	}
	for len(s.byKey) > capacity {
		var oldest same
		var found *corev1.Event
		for k, e := range s.byKey {
			if found == nil || older(e, found) < 0 {
				oldest, found = k, e
			}
		}
		delete(s.byKey, oldest)
	}
}

func older(a, b *corev1.Event) int {
	if c := a.LastTimestamp.Compare(b.LastTimestamp.Time); c != 0 {
		return c
	}
	x, _ := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, _ := strconv.ParseUint(b.ResourceVersion, 10, 64)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// List returns the events that are not too old, from the oldest to the newest. They are never
// changed afterwards.
func (s *Store) List(now time.Time) []*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*corev1.Event, 0, len(s.byKey))
	for _, e := range s.byKey {
		if now.Sub(e.LastTimestamp.Time) <= keepFor {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, older)
	return list
}

// Newest is the newest event about an object among those of some reasons, nil without one.
func (s *Store) Newest(o corev1.ObjectReference, now time.Time, reasons ...string) *corev1.Event {
	for _, e := range slices.Backward(s.List(now)) {
		if e.InvolvedObject == o && slices.Contains(reasons, e.Reason) {
			return e
		}
	}
	return nil
}

// Flush writes the events to the store's file, if they changed since the last call.
func (s *Store) Flush(now time.Time) error {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = false
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	data, err := json.Marshal(s.List(now))
	if err == nil {
		err = durable.Replace(s.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// Shorten cuts a message to the length that is kept, at the border of a character.
func Shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const mark = "…"
	cut := maxMessage - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
