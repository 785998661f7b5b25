package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/link"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// backlog is asked for on listeners; the kernel caps it at net.core.somaxconn.
const backlog = 4096

// listen opens the announced listeners, which are on every address of the pod, both IP versions, if they name none.
func listen(wanted []link.Listener) ([]wasip1.Listener, error) {
	var open []wasip1.Listener
	for _, w := range wanted {
		fd, err := listenOn(w)
		if w.Optional && errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, faultf(link.Precondition, "listen on port %d (%s): %w", w.Port, w.Name, err)
		}
		open = append(open, wasip1.Listener{FD: fd, Name: w.Name})
	}
	return open, nil
}

func listenOn(w link.Listener) (int, error) {
	if w.Address == "" {
		return listenPort(w.Port)
	}
	address, err := netip.ParseAddr(w.Address)
	if err != nil {
		return -1, err
	}
	if address.Is4() {
		return listenSocket(unix.AF_INET, &unix.SockaddrInet4{Port: int(w.Port), Addr: address.As4()})
	}
	return listenSocket(unix.AF_INET6, &unix.SockaddrInet6{Port: int(w.Port), Addr: address.As16()})
}

// listenPort opens one listener on [::], which takes IPv4 too, or on 0.0.0.0 where there is no IPv6.
func listenPort(port uint16) (int, error) {
	fd, err := listenSocket(unix.AF_INET6, &unix.SockaddrInet6{Port: int(port)})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		fd, err = listenSocket(unix.AF_INET, &unix.SockaddrInet4{Port: int(port)})
	}
	return fd, err
}

func listenSocket(family int, address unix.Sockaddr) (int, error) {
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
		func() error { return unix.Listen(fd, backlog) },
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
