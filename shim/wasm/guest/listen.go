package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// backlog is asked for on listeners; the kernel caps it at net.core.somaxconn.
const backlog = 4096

// port is a socket that has its address and does not listen yet. Such sockets of several guests may
// have the same address: until one of them listens, none disturbs another.
type port struct {
	fd     int
	wanted annotation.Listener
}

// bindPorts makes the sockets of the announced listeners, which are on every address of the pod,
// both IP versions, if they name none. It is for the time when the process may use low ports.
func bindPorts(wanted []annotation.Listener) ([]port, error) {
	var bound []port
	for _, w := range wanted {
		fd, err := bindTo(w)
		if w.Optional && errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, takenError(w, err)
		}
		bound = append(bound, port{fd: fd, wanted: w})
	}
	return bound, nil
}

// listen opens the announced listeners. A guest that was created holds none: it may never start,
// and a sibling may.
func (p *process) listen() error {
	if h := p.guest.http; h != nil {
		return h.listen(p.guest.ports)
	}
	host, announced := p.guest.host.(*wasip1.Host)
	if !announced {
		return nil
	}
	var open []wasip1.Listener
	for _, b := range p.guest.ports {
		err := unix.Listen(b.fd, backlog)
		if b.wanted.Optional && errors.Is(err, unix.EADDRINUSE) {
			unix.Close(b.fd)
			continue
		}
		if err != nil {
			return takenError(b.wanted, err)
		}
		open = append(open, wasip1.Listener{FD: b.fd, Name: b.wanted.Name})
	}
	return host.Announce(open, listenEnv(open))
}

func takenError(w annotation.Listener, err error) error {
	return faultf(link.Precondition, "listen on port %d (%s): %w", w.Port, w.Name, err)
}

func bindTo(w annotation.Listener) (int, error) {
	if w.Address == "" {
		return bindPort(w.Port)
	}
	address, err := netip.ParseAddr(w.Address)
	if err != nil {
		return -1, err
	}
	if address.Is4() {
		return bindSocket(unix.AF_INET, &unix.SockaddrInet4{Port: int(w.Port), Addr: address.As4()})
	}
	return bindSocket(unix.AF_INET6, &unix.SockaddrInet6{Port: int(w.Port), Addr: address.As16()})
}

// bindPort makes one socket on [::], which takes IPv4 too, or on 0.0.0.0 where there is no IPv6.
func bindPort(port uint16) (int, error) {
	fd, err := bindSocket(unix.AF_INET6, &unix.SockaddrInet6{Port: int(port)})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		fd, err = bindSocket(unix.AF_INET, &unix.SockaddrInet4{Port: int(port)})
	}
	return fd, err
}

func bindSocket(family int, address unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	steps := []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
		func() error {
			if family != unix.AF_INET6 {
				return nil
			}
			return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
		},
		func() error { return unix.Bind(fd, address) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// listenEnv announces listeners the way systemd does. There is no LISTEN_PID: a guest has no pid.
func listenEnv(listeners []wasip1.Listener) []string {
	if len(listeners) == 0 {
		return nil
	}
	names := make([]string, len(listeners))
	for i, l := range listeners {
		names[i] = strings.ReplaceAll(l.Name, ":", "_")
	}
	return []string{
		"LISTEN_FDS=" + strconv.Itoa(len(listeners)),
		fmt.Sprintf("LISTEN_FDNAMES=%s", strings.Join(names, ":")),
	}
}
