// Package queue keeps things in the order of the times at which something is to be done with them.
package queue

import (
	"container/heap"
	"time"
)

// Entry is a thing's place in a queue; the thing embeds it. The zero value is in no queue.
type Entry struct {
	due   time.Time
	place int // in the heap, from 1; 0 outside
}

// Due is the time that the thing was last given.
func (e *Entry) Due() time.Time { return e.due }

func (e *Entry) entry() *Entry { return e }

// Item is a pointer to what embeds an Entry.
type Item interface{ entry() *Entry }

// Queue has the earliest thing first. Its zero value is empty.
type Queue[T Item] struct{ items items[T] }

// Set gives a thing its time, whether it is in the queue or not. With the zero time it is taken
// out.
func (q *Queue[T]) Set(item T, due time.Time) {
	e := item.entry()
	e.due = due
	switch {
	case due.IsZero() && e.place > 0:
		heap.Remove(&q.items, e.place-1)
	case due.IsZero():
	case e.place > 0:
		heap.Fix(&q.items, e.place-1)
	default:
		heap.Push(&q.items, item)
	}
}

// Take takes out the first thing whose time has come, if there is one. The thing keeps its time.
func (q *Queue[T]) Take(now time.Time) (item T, ok bool) {
	if next, any := q.Next(); !any || next.After(now) {
		return item, false
	}
	return heap.Pop(&q.items).(T), true
}

// Next is the earliest time, and false if the queue is empty.
func (q *Queue[T]) Next() (time.Time, bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].entry().due, true
}

// All is what is in the queue, in no order. It is the queue's own.
func (q *Queue[T]) All() []T { return q.items }

type items[T Item] []T

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].entry().due.Before(s[j].entry().due) }

func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].entry().place, s[j].entry().place = i+1, j+1
}

// Push implements heap.Interface.
func (s *items[T]) Push(x any) {
	item := x.(T)
	*s = append(*s, item)
	item.entry().place = len(*s)
}

// Pop implements heap.Interface.
func (s *items[T]) Pop() any {
	var none T
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = none
	*s = (*s)[:last]
	item.entry().place = 0
	return item
}
