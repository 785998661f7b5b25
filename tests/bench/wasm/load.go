package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// request is what every client sends, again and again on one connection.
const request = "GET / HTTP/1.1\r\nHost: pod\r\n\r\n"

// clients are keep-alive connections that one thread serves with as few system calls as it can:
// what the clients use of the processors is not the servers'.
type clients struct {
	epoll int
	conns []int
	files []*os.File
}

// dial opens count connections.
func dial(ctx context.Context, address string, count int) (*clients, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	c := &clients{epoll: epoll}
	for range count {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			c.close()
			return nil, err
		}
		file, err := conn.(*net.TCPConn).File()
		conn.Close()
		if err != nil {
			c.close()
			return nil, err
		}
		fd := int(file.Fd())
		c.files, c.conns = append(c.files, file), append(c.conns, fd)
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *clients) close() {
	for _, f := range c.files {
		f.Close()
	}
	unix.Close(c.epoll)
}

// run has every connection send a request as soon as the last is answered, for that long, and
// returns how many were answered in a second. The first answer tells how long the others are: the
// server always says the same.
func (c *clients) run(length time.Duration) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ask := []byte(request)
	answer := make([]byte, 64<<10)
	for _, fd := range c.conns {
		if _, err := unix.Write(fd, ask); err != nil {
			return 0, err
		}
	}
	events := make([]unix.EpollEvent, len(c.conns))
	begin, waiting, count := time.Now(), len(c.conns), 0
	for waiting > 0 {
		n, err := unix.EpollWait(c.epoll, events, 10000)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, fmt.Errorf("no answer for ten seconds")
		}
		now := time.Since(begin)
		for _, event := range events[:n] {
			size, err := unix.Read(int(event.Fd), answer)
			if err != nil {
				return 0, err
			}
			if !bytes.HasPrefix(answer[:size], []byte("HTTP/1.1 200 ")) || !bytes.HasSuffix(answer[:size], []byte("\r\n\r\nHello from a pod.\n")) {
				return 0, fmt.Errorf("answered with %q", answer[:size])
			}
			if now >= length {
				waiting--
				continue
			}
			count++
			if _, err := unix.Write(int(event.Fd), ask); err != nil {
				return 0, err
			}
		}
	}
	return float64(count) / length.Seconds(), nil
}
