package stdio

import "bytes"

// MaxLine is how much of a line one log record holds, in bytes; a longer line becomes several.
const MaxLine = 16 << 10

// Tags of a log record: a piece of a line whose rest follows, and the last piece or a full line.
const (
	tagPartial = 'P'
	tagFull    = 'F'
)

// splitter cuts a stream of bytes into log records. A carriage return right before
// a newline is dropped. A line of exactly max bytes is one full record.
type splitter struct {
	max     int
	pending []byte // a line's start: at most max bytes, and one more that may be a droppable carriage return
}

// write cuts p and calls emit for every record; emit keeps nothing of content.
func (s *splitter) write(p []byte, emit func(tag byte, content []byte)) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end >= 0 && len(s.pending) == 0 { // the common case: whole lines, nothing is copied
			s.line(trimCR(p[:end]), emit)
			p = p[end+1:]
			continue
		}
		if len(s.pending) > s.max && p[0] != '\n' {
			s.shift(emit)
			continue
		}
		segment := p
		if end >= 0 {
			segment = p[:end]
		}
		n := min(len(segment), s.max+1-len(s.pending))
		s.pending = append(s.pending, segment[:n]...)
		p = p[n:]
		switch {
		case n == len(segment) && end >= 0:
			s.line(trimCR(s.pending), emit)
			s.pending = s.pending[:0]
			p = p[1:]
		case len(s.pending) > s.max && s.pending[s.max] != '\r':
			s.shift(emit)
		}
	}
	if len(s.pending) == 0 {
		s.pending = nil // idle streams hold no buffer
	}
}

// shift emits the pending full-length piece and keeps the byte behind it.
func (s *splitter) shift(emit func(tag byte, content []byte)) {
	emit(tagPartial, s.pending[:s.max])
	s.pending[0] = s.pending[s.max]
	s.pending = s.pending[:1]
}

// line emits a whole line in as many pieces as it needs.
func (s *splitter) line(line []byte, emit func(tag byte, content []byte)) {
	for len(line) > s.max {
		emit(tagPartial, line[:s.max])
		line = line[s.max:]
	}
	emit(tagFull, line)
}

// flush emits a last line that had no newline, as partial: there was no end to it.
func (s *splitter) flush(emit func(tag byte, content []byte)) {
	rest := s.pending
	s.pending = nil
	for len(rest) > s.max {
		emit(tagPartial, rest[:s.max])
		rest = rest[s.max:]
	}
	if len(rest) > 0 {
		emit(tagPartial, rest)
	}
}

func trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}
