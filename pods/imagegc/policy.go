// Package imagegc removes images that nothing uses when their file system is full, as a kubelet
// does: what is removed, and in which order, is a function of what was seen of the images and of
// the time. A Collector asks a CRI server about the images, and removes them there.
package imagegc

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Policy says when images are removed, and which.
type Policy struct {
	// High is the use of the image file system, in percent, from which images are removed; Low is
	// the use down to which. With High 0 or 100 nothing is removed for its room.
	High, Low int
	// MinAge is how long an image is known before it is removed. MaxAge is how long after its last
	// use one is removed whatever the room; 0 is no limit.
	MinAge, MaxAge time.Duration
}

// Off says that nothing is ever removed by itself.
func (p Policy) Off() bool { return (p.High <= 0 || p.High >= 100) && p.MaxAge == 0 }

// Missing is how many bytes are to be made free: none below High.
func (p Policy) Missing(s Space) int64 {
	if p.High <= 0 || p.High >= 100 || s.Capacity <= 0 || s.Percent() < p.High {
		return 0
	}
	return s.Capacity*int64(100-p.Low)/100 - s.available()
}

// Space is the room of a file system, in bytes.
type Space struct{ Capacity, Available int64 }

// Percent is how much of it is used, rounded up.
func (s Space) Percent() int { return 100 - int(s.available()*100/s.Capacity) }

func (s Space) available() int64 { return min(max(s.Available, 0), s.Capacity) }

// within is the room if what is used may not be more than a budget: the smaller one of the two.
func (s Space) within(budget, used int64) Space {
	bound := Space{Capacity: budget, Available: max(budget-used, 0)}
	if budget <= 0 || s.Capacity > 0 && s.Percent() >= bound.Percent() {
		return s
	}
	return bound
}

// Image is one that a CRI server has.
type Image struct {
	ID, Handler string
	// Names are its tags and digests.
	Names  []string
	Size   int64 // bytes
	Pinned bool
}

// Book keeps when images were first seen and last used. Like a kubelet's it is of one run: what was
// there before counts as first seen at the first look.
type Book struct{ seen map[string]*entry }

type entry struct {
	Image
	// first is when the image was first seen, used when it was last seen in use: zero for never.
	first, used time.Time
	busy        bool // at the last look
}

// Look takes in the images that are there, and whether each is used.
func (b *Book) Look(images []Image, used func(Image) bool, now time.Time) {
	before := b.seen
	b.seen = make(map[string]*entry, len(images))
	for _, img := range images {
		e := before[img.ID]
		if e == nil {
			e = &entry{first: now}
		}
		e.Image, e.busy = img, used(img)
		if e.first.After(now) { // the clock was set back
			e.first = now
		}
		if e.busy || e.used.After(now) {
			e.used = now
		}
		b.seen[img.ID] = e
	}
}

// Unused are the images that may be removed for their room: neither used nor pinned nor younger
// than MinAge; the least recently used ones first.
func (b *Book) Unused(p Policy, now time.Time) []Image {
	return b.choose(func(e *entry) bool { return now.Sub(e.first) >= p.MinAge })
}

// Expired are those of the unused images whose last use was longer ago than MaxAge. One that was
// never used counts from when it was first seen.
func (b *Book) Expired(p Policy, now time.Time) []Image {
	if p.MaxAge <= 0 {
		return nil
	}
	return b.choose(func(e *entry) bool {
		return now.Sub(e.first) >= p.MinAge && now.Sub(e.first) > p.MaxAge && now.Sub(e.used) > p.MaxAge
	})
}

func (b *Book) choose(f func(*entry) bool) []Image {
	var list []*entry
	for _, e := range b.seen {
		if !e.busy && !e.Pinned && f(e) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int {
		return cmp.Or(a.used.Compare(b.used), a.first.Compare(b.first), cmp.Compare(a.ID, b.ID))
	})
	images := make([]Image, len(list))
	for i, e := range list {
		images[i] = e.Image
	}
	return images
}

// sizeText is a number of bytes for people: "12.3 GiB".
func sizeText(bytes int64) string {
	size, unit := float64(bytes), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}
