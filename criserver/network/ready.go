package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The kernel finishes new links and new IPv6 addresses in work queues of its own, after it has
// answered. A packet that comes before that is lost, and is sent again only after a second. The
// functions here return when it will get through.

// readyLimit bounds the waiting: what takes longer works later.
const readyLimit = time.Second

// notices is a subscription to the kernel's notices of a group, with a time limit.
type notices struct {
	socket   *nl.NetlinkSocket
	deadline time.Time
}

func subscribe(group uint) (*notices, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, group)
	if err != nil {
		return nil, fmt.Errorf("subscribe to notices of links: %w", err)
	}
	return &notices{socket: s, deadline: time.Now().Add(readyLimit)}, nil
}

// next returns the next notices; ok is false when the time is over. An overflow, in which some were
// lost, gives none.
func (n *notices) next() (messages []syscall.NetlinkMessage, ok bool) {
	left := time.Until(n.deadline)
	if left <= 0 {
		return nil, false
	}
	timeout := unix.NsecToTimeval(int64(left))
	_ = n.socket.SetReceiveTimeout(&timeout) // never fails
	messages, _, _ = n.socket.Receive()
	return messages, true
}

// awaitUp returns when a link whose other end is up carries packets; until then a bridge drops what
// is meant for it. From Linux 6.8 on the question alone makes the kernel catch up; before, its
// notice is waited for.
func awaitUp(h *netlink.Handle, index int) error {
	var n *notices
	for {
		l, err := h.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("look whether link %d is up: %w", index, err)
		}
		if state := l.Attrs().OperState; state == netlink.OperUp || state == netlink.OperUnknown {
			return nil
		}
		if n == nil { // and look once more: it may have come up meanwhile
			if n, err = subscribe(unix.RTNLGRP_LINK); err != nil {
				return err
			}
			defer n.socket.Close()
			continue
		}
		if _, ok := n.next(); !ok {
			return nil
		}
	}
}

// addAddresses adds addresses to a link of the thread's network namespace. No other program gives
// addresses in our subnets: IPv6 ones skip the search for duplicates, and the kernel gives notice
// of them when the link listens to neighbours that look for them.
func addAddresses(h *netlink.Handle, link netlink.Link, addrs []netip.Prefix) error {
	var n *notices
	var pending []netip.Addr
	for _, p := range addrs {
		a := &netlink.Addr{IPNet: ipNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
			if n == nil {
				var err error
				if n, err = subscribe(unix.RTNLGRP_IPV6_IFADDR); err != nil {
					return err
				}
				defer n.socket.Close()
			}
		}
		err := h.AddrAdd(link, a)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("add address %v to link %q: %w", p, link.Attrs().Name, err)
		}
		if p.Addr().Is6() {
			pending = append(pending, p.Addr())
		}
	}
	for len(pending) > 0 {
		messages, ok := n.next()
		if !ok {
			return nil
		}
		for _, m := range messages {
			if a := addedAddress(m); a.IsValid() {
				pending = slices.DeleteFunc(pending, func(p netip.Addr) bool { return p == a })
			}
		}
	}
	return nil
}

// addedAddress is the address that a notice is about, zero if it is about something else.
func addedAddress(m syscall.NetlinkMessage) netip.Addr {
	if m.Header.Type != unix.RTM_NEWADDR {
		return netip.Addr{}
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&m)
	if err != nil {
		return netip.Addr{}
	}
	for _, attr := range attrs {
		if attr.Attr.Type == unix.IFA_ADDRESS {
			a, _ := netip.AddrFromSlice(attr.Value)
			return a
		}
	}
	return netip.Addr{}
}
