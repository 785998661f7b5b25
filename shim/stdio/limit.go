package stdio

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// Limits bound what a container writes to its CRI log file, standard output and standard error
// together, as it stands in the file. What is beyond is dropped in whole lines, and the log says
// how many. 0 = no limit.
type Limits struct {
	Rate  int64 // bytes per second
	Burst int64 // bytes beyond that at once; 0 = what Rate gives in ten seconds
	Size  int64 // bytes of one file, until it is reopened after a rotation
}

// defaultBurst is how many seconds' worth of Rate may come at once.
const defaultBurst = 10

// String is the limits as ParseLimits reads them, "" for none.
func (l Limits) String() string {
	var parts []string
	for _, f := range l.fields() {
		if *f.value != 0 {
			parts = append(parts, f.name+"="+strconv.FormatInt(*f.value, 10))
		}
	}
	return strings.Join(parts, ",")
}

// ParseLimits reads limits of the form rate=1,burst=2,size=3, each of them optional.
//
// # Errors
//
// ErrInvalidArgument for anything else, and for numbers below 0.
func ParseLimits(text string) (l Limits, err error) {
	if text == "" {
		return l, nil
	}
	fields := l.fields()
next:
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(part, "=")
		for _, f := range fields {
			if f.name != name {
				continue
			}
			if *f.value, err = strconv.ParseInt(number, 10, 64); err != nil || *f.value < 0 {
				break
			}
			continue next
		}
		return Limits{}, fmt.Errorf("log limits %q: %q is not a limit: %w", text, part, errdefs.ErrInvalidArgument)
	}
	return l, nil
}

type limitField struct {
	name  string
	value *int64
}

func (l *Limits) fields() []limitField {
	return []limitField{{"rate", &l.Rate}, {"burst", &l.Burst}, {"size", &l.Size}}
}

// meter decides which lines of one log file are kept. It needs no memory that grows. Its file's
// lock guards it.
type meter struct {
	limits Limits
	credit float64   // bytes that may come now
	at     time.Time // when credit was right
	size   int64     // of the file
	dry    bool      // credit was used up; nothing is kept until some has gathered

	full  bool // the file has said that it is
	lines uint64
	bytes uint64 // dropped, and not told of yet
}

func newMeter(l Limits, size int64, now time.Time) *meter {
	if l == (Limits{}) {
		return nil
	}
	l.Burst = cmp.Or(l.Burst, defaultBurst*l.Rate)
	return &meter{limits: l, size: size, credit: float64(l.Burst), at: now}
}

// admits says whether a line that starts with a record of n bytes is kept.
func (m *meter) admits(now time.Time, n int) bool {
	if m.isFull(n) {
		return false
	}
	if m.limits.Rate == 0 {
		return true
	}
	m.gather(now)
	switch {
	case m.dry && m.credit < m.enough():
		return false
	case m.credit <= 0:
		m.dry = true
		return false
	}
	m.dry = false
	return true
}

func (m *meter) isFull(n int) bool { return m.limits.Size != 0 && m.size+int64(n) > m.limits.Size }

// continues says whether the next record of a line that is kept so far is kept too.
func (m *meter) continues(now time.Time, n int) bool {
	if m.isFull(n) {
		return false
	}
	if m.limits.Rate == 0 {
		return true
	}
	m.gather(now)
	return m.credit > 0
}

// gather adds what time has given.
func (m *meter) gather(now time.Time) {
	if passed := now.Sub(m.at); passed > 0 {
		m.credit = min(m.credit+passed.Seconds()*float64(m.limits.Rate), float64(m.limits.Burst))
		m.at = now
	}
}

// enough is the credit from which lines are kept again: a second's worth, so that a flood comes in
// pieces that can be read, with one line about the rest after each.
func (m *meter) enough() float64 { return float64(min(m.limits.Rate, m.limits.Burst)) }

// wait is how long it takes until lines are kept again.
func (m *meter) wait() time.Duration {
	return max(time.Duration((m.enough()-m.credit)/float64(m.limits.Rate)*float64(time.Second)), 10*time.Millisecond)
}

// wrote counts what went into the file.
func (m *meter) wrote(n int) {
	m.credit -= float64(n)
	m.size += int64(n)
}

// drop counts what does not. One line is that, in however many records.
func (m *meter) drop(n int, whole bool) {
	m.bytes += uint64(n)
	if whole {
		m.lines++
	}
}

// tell is the text about what was dropped, and forgets it. "" = nothing was.
func (m *meter) tell() string {
	if m.bytes == 0 && m.lines == 0 {
		return ""
	}
	text := fmt.Sprintf("sunaba: dropped %d lines of %d bytes beyond the log's limits (%s)", m.lines, m.bytes, m.limits)
	m.lines, m.bytes = 0, 0
	return text
}
