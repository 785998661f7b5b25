package page

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// State is what the page shows of a node. It has no secrets, environments and annotations: whoever
// reaches the page sees all of it.
type State struct {
	Node Node `json:"node"`
	// Pods, Images and Events come in the order in which they are shown; what is above the limits
	// is left out and counted.
	Pods       []Pod   `json:"pods"`
	MorePods   int     `json:"morePods"`
	Total      Total   `json:"total"` // of all pods, also those that are left out; it is set when the state is sent
	Images     []Image `json:"images"`
	MoreImages int     `json:"moreImages"`
	Events     []Event `json:"events"`
	MoreEvents int     `json:"moreEvents"`
	// Problems are what the server failed to find out.
	Problems []string `json:"problems"`
}

// Node is the node itself.
type Node struct {
	Name       string      `json:"name"`
	Version    string      `json:"version"`
	Conditions []Condition `json:"conditions"`
	Handlers   []Handler   `json:"handlers"`
	// ImageBytes is the disk space of images.
	ImageBytes uint64 `json:"imageBytes"`
	// Manifests is whether the server runs pods of manifests, and so records events.
	Manifests bool `json:"manifests"`
}

// Condition is one of the node's conditions.
type Condition struct {
	Type   string `json:"type"`
	Status string `json:"status"` // "yes" or "no"
	// Good is whether it is as it should be, which is false for a condition such as MemoryPressure.
	Good    bool   `json:"good"`
	Message string `json:"message"`
}

// Handler is a runtime handler.
type Handler struct {
	Name    string `json:"name"`
	Version string `json:"version"` // of its OCI runtime
	Problem string `json:"problem"`
	Default bool   `json:"default"`
}

// Tones of a pod: how its state is to be taken.
const (
	Fine    = "fine"
	Over    = "over" // it has ended well
	Waiting = "waiting"
	Failing = "failing"
)

// Pod is a pod, with the texts of `sunaba get pods` and the figures of `sunaba top`.
type Pod struct {
	ID         string      `json:"id"` // another one for each pod
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Handler    string      `json:"handler"`
	Ready      string      `json:"ready"`
	Status     string      `json:"status"`
	Tone       string      `json:"tone"`
	Restarts   string      `json:"restarts"`
	Created    int64       `json:"created"` // milliseconds since 1970
	Use        *Use        `json:"use"`     // nil where nothing of the pod runs
	Containers []Container `json:"containers"`
	More       int         `json:"moreContainers"`
}

// Use is what a pod uses and costs now. An amount of 0 is not declared.
type Use struct {
	// Cores is below 0 before a second sample.
	Cores          float64 `json:"cores"`
	MemoryBytes    uint64  `json:"memoryBytes"` // with the overhead
	DeclaredBytes  int64   `json:"declaredBytes"`
	DeclaredMillis int64   `json:"declaredMillis"`
	MeasuredBytes  uint64  `json:"measuredBytes"`
	Verdict        string  `json:"verdict"`
}

// Total is what all pods use together.
type Total struct {
	Running int `json:"running"` // that use anything
	Failing int `json:"failing"`
	// Cores is below 0 if it is known of none that runs.
	Cores         float64 `json:"cores"`
	MemoryBytes   uint64  `json:"memoryBytes"`
	DeclaredBytes int64   `json:"declaredBytes"`
	MeasuredBytes uint64  `json:"measuredBytes"`
}

func total(pods []Pod) Total {
	sum, known := Total{}, false
	for _, p := range pods {
		if p.Tone == Failing {
			sum.Failing++
		}
		u := p.Use
		if u == nil {
			continue
		}
		sum.Running++
		sum.Cores += max(0, u.Cores)
		known = known || u.Cores >= 0
		sum.MemoryBytes += u.MemoryBytes
		sum.DeclaredBytes += u.DeclaredBytes
		sum.MeasuredBytes += u.MeasuredBytes
	}
	if sum.Running > 0 && !known {
		sum.Cores = -1
	}
	return sum
}

// Container is a container of a pod.
type Container struct {
	Name     string `json:"name"`
	Image    string `json:"image"`
	State    string `json:"state"`
	Restarts int32  `json:"restarts"`
}

// Image is an image name with all variants that are present.
type Image struct {
	Name     string    `json:"name"`
	Variants []Variant `json:"variants"`
	More     int       `json:"moreVariants"`
}

// Variant is the image of one platform.
type Variant struct {
	Platform string `json:"platform"`
	Handlers string `json:"handlers"`
	Kind     string `json:"kind"`
	Bytes    int64  `json:"bytes"`
	Pinned   bool   `json:"pinned"`
}

// Event is something that happened to an object.
type Event struct {
	At      int64  `json:"at"` // milliseconds since 1970
	Warning bool   `json:"warning"`
	Reason  string `json:"reason"`
	Object  string `json:"object"`
	Message string `json:"message"`
	Count   int32  `json:"count"`
}

// What is sent at most. Names come from those who make pods and images.
const (
	mostPods       = 200
	mostContainers = 10
	mostImages     = 200
	mostVariants   = 8
	mostEvents     = 100
	mostFew        = 32  // conditions, handlers, problems
	mostName       = 253 // characters of a name
	mostText       = 512 // characters of a message
)

// few shortens a list and says how many are left out.
func few[T any](all []T, most int) ([]T, int) {
	if all == nil {
		all = []T{}
	}
	left := max(0, len(all)-most)
	return all[:len(all)-left], left
}

// bound is the state with at most as much as is sent. It changes s.
func bound(s *State) {
	s.Total = total(s.Pods)
	s.Pods, s.MorePods = few(s.Pods, mostPods)
	s.Images, s.MoreImages = few(s.Images, mostImages)
	s.Events, s.MoreEvents = few(s.Events, mostEvents)
	s.Problems, _ = few(s.Problems, mostFew)
	s.Node.Conditions, _ = few(s.Node.Conditions, mostFew)
	s.Node.Handlers, _ = few(s.Node.Handlers, mostFew)
	names, texts := []*string{&s.Node.Name, &s.Node.Version}, []*string{}
	for i := range s.Problems {
		texts = append(texts, &s.Problems[i])
	}
	for i := range s.Node.Conditions {
		c := &s.Node.Conditions[i]
		names, texts = append(names, &c.Type, &c.Status), append(texts, &c.Message)
	}
	for i := range s.Node.Handlers {
		h := &s.Node.Handlers[i]
		names, texts = append(names, &h.Name, &h.Version), append(texts, &h.Problem)
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		names = append(names, &p.ID, &p.Namespace, &p.Name, &p.Handler, &p.Ready, &p.Status, &p.Restarts, &p.Tone)
		if p.Use != nil {
			names = append(names, &p.Use.Verdict)
		}
		p.Containers, p.More = few(p.Containers, mostContainers)
		for j := range p.Containers {
			c := &p.Containers[j]
			names = append(names, &c.Name, &c.Image, &c.State)
		}
	}
	for i := range s.Images {
		m := &s.Images[i]
		names = append(names, &m.Name)
		m.Variants, m.More = few(m.Variants, mostVariants)
		for j := range m.Variants {
			v := &m.Variants[j]
			names = append(names, &v.Platform, &v.Handlers, &v.Kind)
		}
	}
	for i := range s.Events {
		e := &s.Events[i]
		names, texts = append(names, &e.Reason, &e.Object), append(texts, &e.Message)
	}
	for _, name := range names {
		*name = plain(*name, mostName)
	}
	for _, text := range texts {
		*text = plain(*text, mostText)
	}
}

// plain is a text of at most so many characters, without those that control a terminal or turn the
// direction of what stands beside.
func plain(text string, most int) string {
	if len(text) > most*utf8.UTFMax { // not more work than for the longest one
		text = text[:most*utf8.UTFMax]
	}
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > most {
			return b.String() + "…"
		}
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}
