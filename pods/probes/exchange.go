package probes

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// What is taken of an answer at most, in bytes, and how many answers may come before the last.
const (
	maxHead    = 64 << 10
	maxFraming = 1 << 20 // the body with what is around its chunks
	maxInterim = 5
	// farewell is how long a server has to close the connection first, as it was asked to, so that
	// the port that stays in TIME_WAIT is its own and none of the node's.
	farewell = 20 * time.Millisecond
)

// web sends HTTP/1.1 requests, each over a connection of its own.
type web struct {
	tls     *tls.Config
	buffers sync.Pool // of *buffer
}

// buffer is what one answer is read with.
type buffer struct {
	limit io.LimitedReader
	head  *bufio.Reader
	body  [maxOutput]byte
}

func newWeb() *web {
	w := &web{tls: &tls.Config{InsecureSkipVerify: true}}
	w.buffers.New = func() any { return &buffer{head: bufio.NewReaderSize(nil, 4<<10)} }
	return w
}

// answer is the head of a response, and its body while it is not closed.
type answer struct {
	status   int
	location string

	web  *web
	conn net.Conn
	done func() bool
	buf  *buffer
	body io.Reader
}

// errHead is the error of an answer whose head is too long.
var errHead = fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted", maxHead)

// exchange sends a request and reads the head of the answer. Whoever takes the answer closes it.
func (w *web) exchange(ctx context.Context, t *target) (*answer, error) {
	conn, err := w.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	buf := w.buffers.Get().(*buffer)
	a := &answer{web: w, conn: conn, buf: buf}
	// The end of the context, by its deadline too, ends what is read and written.
	a.done = context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	if _, err := conn.Write(t.text); err != nil {
		a.close()
		return nil, err
	}
	buf.limit = io.LimitedReader{R: conn, N: maxHead}
	buf.head.Reset(&buf.limit)
	response, err := readHead(buf.head)
	if err != nil {
		if buf.limit.N <= 0 {
			err = errHead
		}
		a.close()
		return nil, err
	}
	buf.limit.N = maxFraming
	a.status, a.location, a.body = response.StatusCode, response.Header.Get("Location"), response.Body
	return a, nil
}

// connect opens a connection, with TLS if the request's scheme asks for it. Certificates are not
// verified.
func (w *web) connect(ctx context.Context, t *target) (net.Conn, error) {
	conn, err := dial(ctx, t.address)
	if err != nil || t.url.Scheme != "https" {
		return conn, err
	}
	config := w.tls.Clone()
	config.ServerName = t.url.Hostname()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(record.RecordHeader[:]) == "HTTP/" {
			return nil, http.ErrSchemeMismatch
		}
		return nil, err
	}
	// What is unsent is not waited for with a TLS farewell: closing the connection says enough.
	return plainClose{secure, conn}, nil
}

// plainClose is a TLS connection that is closed without a farewell, which a peer could hold up.
type plainClose struct {
	*tls.Conn
	plain net.Conn
}

// Close closes the connection below.
func (c plainClose) Close() error { return c.plain.Close() }

// readHead reads the head of the last answer.
func readHead(r *bufio.Reader) (*http.Response, error) {
	for range maxInterim + 1 {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return nil, err
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response, nil
		}
	}
	return nil, errors.New("net/http: too many 1xx informational responses")
}

// read returns the body of a redirect, of which it reads no more than a probe keeps. Other bodies
// are read too, since one that breaks off is an error, but nobody asks what they say.
func (a *answer) read() (string, error) {
	n := 0
	for n < len(a.buf.body) {
		got, err := a.body.Read(a.buf.body[n:])
		n += got
		if err == io.EOF {
			a.conn.SetReadDeadline(time.Now().Add(farewell))
			a.conn.Read(a.buf.body[n:min(n+1, len(a.buf.body))])
			break
		}
		if err != nil {
			return "", err
		}
	}
	if a.status < 300 || a.status >= 400 {
		return "", nil
	}
	return string(a.buf.body[:n]), nil
}

// close closes the connection without reading what is left of the body.
func (a *answer) close() {
	a.done()
	a.conn.Close()
	a.buf.head.Reset(nil)
	a.buf.limit.R = nil
	a.web.buffers.Put(a.buf)
}
