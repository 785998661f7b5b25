package wasi

import "golang.org/x/sys/unix"

// Listen makes the socket a listener, which Interrupt knows of from then on.
func (s *Socket) Listen(backlog int) error {
	if err := unix.Listen(s.host, backlog); err != nil {
		return err
	}
	s.sys.mu.Lock()
	defer s.sys.mu.Unlock()
	s.kind = KindListener
	interrupted := s.sys.waiter.interrupted.Load()
	s.sys.listeners[s] = !interrupted
	if interrupted {
		s.stopListening()
	}
	return nil
}

// Accept takes a connection from a listener. flags become those of the connection. After Interrupt
// it hands out what had already arrived and then answers EINVAL, the kernel's own word for a socket
// that no longer listens: Go's http.Serve ends with it, where it would try again after
// ECONNABORTED.
func (s *Socket) Accept(flags Flags) (*Socket, error) {
	fd, err := s.accept()
	if err != nil {
		return nil, err
	}
	conn := &Socket{
		File:   File{sys: s.sys, host: fd, kind: KindSocket, filetype: s.filetype, flags: flags, owned: true},
		family: s.family,
	}
	conn.socket = conn
	return conn, nil
}

func (s *Socket) accept() (int, error) {
	for {
		if conn, ok := s.saved(); ok {
			return conn, nil
		}
		conn, _, err := unix.Accept4(s.host, unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			return conn, nil
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EAGAIN:
		case unix.EINVAL:
			if conn, ok := s.saved(); ok {
				return conn, nil
			}
			return -1, unix.EINVAL
		default:
			return -1, err
		}
		switch err := s.sys.waiter.block(&s.File, unix.POLLIN); err {
		case nil:
		case unix.ECANCELED:
			if s.isListening() {
				return -1, err
			}
		default:
			return -1, err
		}
	}
}

// saved returns a connection that Interrupt took from the kernel's queue.
func (s *Socket) saved() (int, bool) {
	s.sys.mu.Lock()
	defer s.sys.mu.Unlock()
	if len(s.backlog) == 0 {
		return -1, false
	}
	conn := s.backlog[0]
	s.backlog = s.backlog[1:]
	return conn, true
}

// isListening reports whether Interrupt has left the listener alone.
func (s *Socket) isListening() bool {
	s.sys.mu.Lock()
	defer s.sys.mu.Unlock()
	return s.sys.listeners[s]
}

// stopListening makes a listener refuse connections. Those that the kernel has already accepted on
// the guest's behalf are saved first: their clients think themselves connected. Called with
// System.mu held.
func (s *Socket) stopListening() {
	for {
		conn, _, err := unix.Accept4(s.host, unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			break
		}
		s.backlog = append(s.backlog, conn)
	}
	// On a listening TCP socket this ends listening without giving up the descriptor, on which the
	// guest may be waiting.
	_ = unix.Shutdown(s.host, unix.SHUT_RD)
}
