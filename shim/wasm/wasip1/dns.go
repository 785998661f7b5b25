package wasip1

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// maxDatagram is the size of an answer that a server may send in a datagram (EDNS).
const maxDatagram = 1232

// question is a query under way.
type question struct {
	kind    dnsmessage.Type
	id      uint16
	packet  []byte
	done    bool
	missing bool // there is no such name
	ips     []netip.Addr
}

// ask asks the servers for the addresses of a full name, both kinds at once.
func (h *Host) ask(config resolvConf, name string, want hints) ([]netip.Addr, errno) {
	var questions []*question
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		if kind == dnsmessage.TypeA && want.family == familyInet6 && want.flags&infoMapped == 0 ||
			kind == dnsmessage.TypeAAAA && want.family == familyInet4 {
			continue
		}
		q, e := newQuestion(name, kind)
		if e != success {
			return nil, e
		}
		questions = append(questions, q)
	}
	result := eaiAgain
	for range config.attempts {
		for _, server := range config.servers {
			switch e := h.exchange(server, questions, config.timeout); e {
			case success:
				var all []netip.Addr
				missing := true
				for _, q := range questions {
					all = append(all, q.ips...)
					missing = missing && q.missing
				}
				if len(all) == 0 && missing {
					return nil, eaiNoName
				}
				return all, success
			case ecanceled:
				return nil, e
			case eaiFail:
				result = e
			}
		}
	}
	return nil, result
}

// newQuestion makes a query.
func newQuestion(name string, kind dnsmessage.Type) (*question, errno) {
	parsed, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, eaiNoName
	}
	// The id is one of two secrets; the other is the port that the kernel chooses for the socket.
	q := &question{kind: kind, id: uint16(rand.Uint32())}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: q.id, RecursionDesired: true})
	var edns dnsmessage.ResourceHeader
	if b.StartQuestions() != nil ||
		b.Question(dnsmessage.Question{Name: parsed, Type: kind, Class: dnsmessage.ClassINET}) != nil ||
		b.StartAdditionals() != nil || edns.SetEDNS0(maxDatagram, dnsmessage.RCodeSuccess, false) != nil ||
		b.OPTResource(edns, dnsmessage.OPTResource{}) != nil {
		return nil, eaiFail
	}
	if q.packet, err = b.Finish(); err != nil {
		return nil, eaiFail
	}
	return q, success
}

// exchange sends the questions that are open to one server and waits for their answers.
func (h *Host) exchange(server netip.AddrPort, questions []*question, timeout time.Duration) errno {
	f, e := h.dial(server, unix.SOCK_DGRAM, timeout)
	if e != success {
		return e
	}
	defer unix.Close(f.host)
	for _, q := range questions {
		if !q.done {
			if _, err := unix.Write(f.host, q.packet); err != nil {
				return toErrno(err)
			}
		}
	}
	buffer := make([]byte, maxDatagram)
	deadline := h.monotonic() + int64(timeout)
	for {
		open := false
		for _, q := range questions {
			open = open || !q.done
		}
		if !open {
			return success
		}
		f.receiveLimit = time.Duration(max(deadline-h.monotonic(), 1))
		if e := h.block(f, unix.POLLIN); e != success {
			return e
		}
		n, err := unix.Read(f.host, buffer)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return toErrno(err)
		}
		for _, q := range questions {
			if q.done {
				continue
			}
			truncated, e := q.take(buffer[:n])
			if truncated {
				e = h.exchangeStream(server, q, timeout)
			}
			if e != success {
				return e
			}
		}
	}
}

// exchangeStream asks again by TCP, for an answer that did not fit a datagram.
func (h *Host) exchangeStream(server netip.AddrPort, q *question, timeout time.Duration) errno {
	f, e := h.dial(server, unix.SOCK_STREAM, timeout)
	if e != success {
		return e
	}
	defer unix.Close(f.host)
	message := append(binary.BigEndian.AppendUint16(nil, uint16(len(q.packet))), q.packet...)
	if _, err := unix.Write(f.host, message); err != nil {
		return toErrno(err)
	}
	var length [2]byte
	if e := h.readAll(f, length[:]); e != success {
		return e
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if e := h.readAll(f, answer); e != success {
		return e
	}
	truncated, e := q.take(answer)
	if e == success && (truncated || !q.done) {
		return eaiFail
	}
	return e
}

// readAll reads until b is full.
func (h *Host) readAll(f *file, b []byte) errno {
	for len(b) > 0 {
		if e := h.block(f, unix.POLLIN); e != success {
			return e
		}
		n, err := unix.Read(f.host, b)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err != nil:
			return toErrno(err)
		case n == 0:
			return eaiFail
		default:
			b = b[n:]
		}
	}
	return success
}

// dial connects a socket of our own, which is in no table.
func (h *Host) dial(to netip.AddrPort, kind int, timeout time.Duration) (*file, errno) {
	domain := unix.AF_INET6
	if to.Addr().Is4() {
		domain = unix.AF_INET
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, toErrno(err)
	}
	f := &file{host: fd, kind: kindSocket, receiveLimit: timeout, sendLimit: timeout}
	size, e := h.setName(domain, to)
	if e == success {
		e = h.connect(f, size)
	}
	if e != success {
		unix.Close(fd)
		return nil, e
	}
	return f, success
}

// take reads an answer. What answers another question, or nothing, is ignored.
func (q *question) take(message []byte) (truncated bool, e errno) {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil || header.ID != q.id || !header.Response {
		return false, success
	}
	asked, err := p.AllQuestions()
	if err != nil || len(asked) != 1 || asked[0].Type != q.kind || !q.asks(asked[0].Name) {
		return false, success
	}
	switch {
	case header.RCode == dnsmessage.RCodeNameError:
		q.done, q.missing = true, true
		return false, success
	case header.RCode != dnsmessage.RCodeSuccess:
		return false, eaiFail
	case header.Truncated:
		return true, success
	}
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			break
		}
		if err != nil {
			return false, eaiFail
		}
		// A server follows aliases itself; whatever names it came by, these are its addresses.
		switch h.Type {
		case dnsmessage.TypeA:
			r, err := p.AResource()
			if err != nil {
				return false, eaiFail
			}
			q.ips = append(q.ips, netip.AddrFrom4(r.A))
		case dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			if err != nil {
				return false, eaiFail
			}
			q.ips = append(q.ips, netip.AddrFrom16(r.AAAA))
		default:
			if p.SkipAnswer() != nil {
				return false, eaiFail
			}
		}
	}
	q.done = true
	return false, success
}

// asks reports whether a name is the one in the query. Case does not count.
func (q *question) asks(name dnsmessage.Name) bool {
	var p dnsmessage.Parser
	if _, err := p.Start(q.packet); err != nil {
		return false
	}
	own, err := p.Question()
	return err == nil && strings.EqualFold(own.Name.String(), name.String())
}
