package dns

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// maxDatagram is the size of an answer that a server may send in a datagram (EDNS).
const maxDatagram = 1232

// question is a question in flight.
type question struct {
	kind    dnsmessage.Type
	id      uint16
	packet  []byte
	done    bool
	missing bool // there is no such name
	ips     []netip.Addr
}

// query is a query to servers.
type query struct {
	sys    *wasi.System
	config resolvConf
	want   Hints
}

// ask asks the servers for the addresses of a full name, both kinds at once.
func (q query) ask(name string) ([]netip.Addr, error) {
	questions, err := q.questions(name)
	if err != nil {
		return nil, err
	}
	result := ErrAgain
	for range q.config.attempts {
		for _, server := range q.config.servers {
			switch err := q.exchange(server, questions); err {
			case nil:
				return addresses(questions)
			case unix.ECANCELED:
				return nil, err
			case ErrFail:
				result = ErrFail
			}
		}
	}
	return nil, result
}

// questions are what to ask for: IPv4 addresses, IPv6 addresses or both.
func (q query) questions(name string) ([]*question, error) {
	var all []*question
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		if kind == dnsmessage.TypeA && q.want.Family == IPv6 && !q.want.Mapped ||
			kind == dnsmessage.TypeAAAA && q.want.Family == IPv4 {
			continue
		}
		one, err := newQuestion(name, kind)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// addresses are those that the answers hold, ErrNoName if every answer says that there is no such
// name.
func addresses(questions []*question) ([]netip.Addr, error) {
	var all []netip.Addr
	missing := true
	for _, q := range questions {
		all = append(all, q.ips...)
		missing = missing && q.missing
	}
	if len(all) == 0 && missing {
		return nil, ErrNoName
	}
	return all, nil
}

// newQuestion makes a query.
func newQuestion(name string, kind dnsmessage.Type) (*question, error) {
	parsed, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, ErrNoName
	}
	// The id is one of two secrets; the other is the port that the kernel chooses for the socket.
	q := &question{kind: kind, id: uint16(rand.Uint32())}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: q.id, RecursionDesired: true})
	var edns dnsmessage.ResourceHeader
	if b.StartQuestions() != nil ||
		b.Question(dnsmessage.Question{Name: parsed, Type: kind, Class: dnsmessage.ClassINET}) != nil ||
		b.StartAdditionals() != nil || edns.SetEDNS0(maxDatagram, dnsmessage.RCodeSuccess, false) != nil ||
		b.OPTResource(edns, dnsmessage.OPTResource{}) != nil {
		return nil, ErrFail
	}
	if q.packet, err = b.Finish(); err != nil {
		return nil, ErrFail
	}
	return q, nil
}

// exchange sends the questions that are open to one server and waits for their answers.
func (q query) exchange(server netip.AddrPort, questions []*question) error {
	conn, err := q.dial(server, unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, one := range questions {
		if !one.done {
			if _, err := conn.Send(wasi.Buffers{}.Add(one.packet)); err != nil {
				return err
			}
		}
	}
	buffer := make([]byte, maxDatagram)
	deadline := q.sys.Monotonic() + int64(q.config.timeout)
	for slices.ContainsFunc(questions, func(one *question) bool { return !one.done }) {
		conn.ReceiveTimeout = time.Duration(max(deadline-q.sys.Monotonic(), 1))
		n, _, err := conn.Receive(wasi.Buffers{}.Add(buffer), 0)
		if err != nil {
			return err
		}
		for _, one := range questions {
			if one.done {
				continue
			}
			truncated, err := one.take(buffer[:n])
			if truncated {
				err = q.exchangeStream(server, one)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// exchangeStream asks again by TCP, for an answer that did not fit a datagram.
func (q query) exchangeStream(server netip.AddrPort, one *question) error {
	conn, err := q.dial(server, unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer conn.Close()
	message := append(binary.BigEndian.AppendUint16(nil, uint16(len(one.packet))), one.packet...)
	if _, err := conn.Send(wasi.Buffers{}.Add(message)); err != nil {
		return err
	}
	var length [2]byte
	if err := receiveFull(conn, length[:]); err != nil {
		return err
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if err := receiveFull(conn, answer); err != nil {
		return err
	}
	truncated, err := one.take(answer)
	if err == nil && (truncated || !one.done) {
		return ErrFail
	}
	return err
}

// receiveFull receives until b is full.
func receiveFull(conn *wasi.Socket, b []byte) error {
	for len(b) > 0 {
		n, _, err := conn.Receive(wasi.Buffers{}.Add(b), 0)
		switch {
		case err != nil:
			return err
		case n == 0:
			return ErrFail
		}
		b = b[n:]
	}
	return nil
}

// dial connects a socket of our own, which is in no guest's table.
func (q query) dial(to netip.AddrPort, kind int) (*wasi.Socket, error) {
	domain := unix.AF_INET6
	if to.Addr().Is4() {
		domain = unix.AF_INET
	}
	conn, err := q.sys.Socket(domain, kind)
	if err != nil {
		return nil, err
	}
	conn.ReceiveTimeout, conn.SendTimeout = q.config.timeout, q.config.timeout
	if err := conn.Connect(to); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// take reads an answer. What answers another question, or nothing, is ignored.
func (q *question) take(message []byte) (truncated bool, err error) {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil || header.ID != q.id || !header.Response {
		return false, nil
	}
	asked, err := p.AllQuestions()
	if err != nil || len(asked) != 1 || asked[0].Type != q.kind || !q.asks(asked[0].Name) {
		return false, nil
	}
	switch {
	case header.RCode == dnsmessage.RCodeNameError:
		q.done, q.missing = true, true
		return false, nil
	case header.RCode != dnsmessage.RCodeSuccess:
		return false, ErrFail
	case header.Truncated:
		return true, nil
	}
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			break
		}
		if err != nil {
			return false, ErrFail
		}
		// A server follows aliases itself; whatever names it came by, these are its addresses.
		switch h.Type {
		case dnsmessage.TypeA:
			r, err := p.AResource()
			if err != nil {
				return false, ErrFail
			}
			q.ips = append(q.ips, netip.AddrFrom4(r.A))
		case dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			if err != nil {
				return false, ErrFail
			}
			q.ips = append(q.ips, netip.AddrFrom16(r.AAAA))
		default:
			if p.SkipAnswer() != nil {
				return false, ErrFail
			}
		}
	}
	q.done = true
	return false, nil
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
