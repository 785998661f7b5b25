package stdio

import (
	"os"
	"time"
)

// aboutStream is the stream of the log's own lines.
const aboutStream = "stderr"

// limited writes one record of a file with limits, or drops it. A line that is broken off is ended,
// so that the next one does not continue it.
func (l *logFile) limited(s *logStream, room *[batchSize]byte, now time.Time, tag byte, content []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, begins := l.meter, !s.inLine
	s.inLine = tag != tagFull
	n := len(timestamp) + len(s.name) + len(content) + 5
	if begins && m.admits(now, n) || !begins && !s.skips && m.continues(now, n) {
		s.skips = false
		if begins {
			l.say(now, m.tell())
		}
		record := appendRecord(room[:0], now, s.name, tag, content)
		l.write(record)
		m.wrote(len(record))
		return
	}
	breaks := !begins && !s.skips
	if breaks {
		l.write(appendRecord(room[:0], now, s.name, tagFull, nil))
		m.dry = m.limits.Rate != 0
	}
	if m.isFull(n) && !m.full {
		m.full = true
		l.say(now, "sunaba: this log has reached its limit ("+m.limits.String()+"), lines are dropped until it is rotated")
	}
	m.drop(len(content)+1, begins || breaks)
	s.skips = true
	if m.dry && l.timer == nil {
		l.timer = time.AfterFunc(m.wait(), l.remind)
	}
}

// say writes a line about the log itself, "" = none. The caller holds the lock.
func (l *logFile) say(now time.Time, text string) {
	if text == "" {
		return
	}
	record := appendRecord(nil, now.UTC(), aboutStream, tagFull, []byte(text))
	l.write(record)
	l.meter.wrote(len(record))
}

// remind tells of what was dropped if no line has come since that could be kept.
func (l *logFile) remind() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	now := time.Now()
	if l.file == nil || l.meter.isFull(0) || !l.meter.admits(now, 0) {
		return // later, with the next line, the next file or the end
	}
	l.say(now, l.meter.tell())
}

// last tells in a file that ends what it lacks. The caller holds the lock.
func (l *logFile) last() {
	if l.meter == nil {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.say(time.Now(), l.meter.tell())
}

// rotate ends the file that was, and measures the one that follows. The caller holds the lock.
func (l *logFile) rotate(next *os.File) {
	m := l.meter
	if m == nil {
		return
	}
	l.last()
	m.size, m.full = 0, false
	if info, err := next.Stat(); err == nil {
		m.size = info.Size()
	}
}
