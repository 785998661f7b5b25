package wasip1

import (
	"encoding/binary"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// maxSubscriptions bounds the host memory that one poll_oneoff needs.
const maxSubscriptions = 1 << 16

// polled is what poll_oneoff waits for. Its memory is kept, so that polling makes no garbage.
type polled struct {
	subs  []wasi.Subscription
	heads []eventHead // of each of subs
}

// eventHead is what an event repeats of its subscription.
type eventHead struct {
	userdata uint64
	kind     uint8
}

func pollOneoff(h *Host, mem api.Memory, p []uint64) error {
	count := uint32(p[2])
	if count == 0 {
		return unix.EINVAL
	}
	if count > maxSubscriptions {
		return unix.ENOMEM
	}
	in, err := array(mem, p[0], p[2], sizeSubscription)
	if err != nil {
		return err
	}
	out, err := array(mem, p[1], p[2], sizeEvent)
	if err != nil {
		return err
	}
	result, err := Record(mem, p[3], 4)
	if err != nil {
		return err
	}
	h.polled.read(h, in)
	if _, err := h.system.Poll(h.polled.subs); err != nil {
		return err
	}
	put32(result, h.polled.write(out))
	return nil
}

// read reads the subscriptions; the events may lie where they are.
func (l *polled) read(h *Host, in []byte) {
	l.subs, l.heads = l.subs[:0], l.heads[:0]
	for ; len(in) > 0; in = in[sizeSubscription:] {
		l.heads = append(l.heads, eventHead{binary.LittleEndian.Uint64(in), in[8]})
		l.subs = append(l.subs, wasi.Subscription{})
		s := &l.subs[len(l.subs)-1]
		switch in[8] {
		case eventClock:
			s.Due, s.Err = deadline(h.system, binary.LittleEndian.Uint32(in[16:]),
				binary.LittleEndian.Uint64(in[24:]), binary.LittleEndian.Uint16(in[40:]))
		case eventRead:
			s.File, s.Err = h.table.polled(binary.LittleEndian.Uint32(in[16:]), rightFdRead)
		case eventWrite:
			s.Write = true
			s.File, s.Err = h.table.polled(binary.LittleEndian.Uint32(in[16:]), rightFdWrite)
		default:
			s.Err = unix.EINVAL
		}
	}
}

// deadline reads a clock's subscription.
func deadline(system *wasi.System, number uint32, timeout uint64, flags uint16) (int64, error) {
	if flags&^clockAbsolute != 0 {
		return 0, unix.EINVAL
	}
	clock, err := getClock(uint64(number))
	if err != nil {
		return 0, err
	}
	return system.Deadline(clock, timeout, flags&clockAbsolute != 0)
}

// polled returns the file of a subscription.
func (t *table) polled(fd uint32, need rights) (*wasi.File, error) {
	d, err := t.get(uint64(fd), 0)
	if err != nil {
		return nil, err
	}
	if need |= rightPollFdReadwrite; d.base&need != need {
		return nil, errNotCapable
	}
	return d.file, nil
}

// write writes an event for each subscription that is ready and returns how many there are.
func (l *polled) write(out []byte) uint32 {
	n := uint32(0)
	for i := range l.subs {
		s := &l.subs[i]
		if !s.Ready {
			continue
		}
		event := out[n*sizeEvent:][:sizeEvent]
		clear(event)
		put64(event, l.heads[i].userdata)
		put16(event[8:], uint16(ErrnoOf(s.Err)))
		event[10] = l.heads[i].kind
		put64(event[16:], s.Bytes)
		if s.Hangup {
			put16(event[24:], eventHangup)
		}
		n++
	}
	return n
}
