package trace

import "io"

// Transfer opens a transfer, whose span ends when it is closed, with the bytes that were read and
// the error of the last read.
func Transfer(span Span, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	r, err := open()
	if err != nil {
		span.End(err)
		return nil, err
	}
	if !span.On() {
		return r, nil
	}
	return &transfer{ReadCloser: r, span: span}, nil
}

type transfer struct {
	io.ReadCloser
	span  Span
	bytes int64
	err   error // of the last read; nil of the end
	ended bool
}

// Read implements io.Reader.
func (t *transfer) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.bytes += int64(n)
	if t.err = err; err == io.EOF {
		t.err = nil
	}
	return n, err
}

// Close implements io.Closer.
func (t *transfer) Close() error {
	if !t.ended {
		t.ended = true
		t.span.Number(Bytes, t.bytes)
		t.span.End(t.err)
	}
	return t.ReadCloser.Close()
}
