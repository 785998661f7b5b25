package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// tryHere says what a start of the server would refuse because of this machine: files that the
// configuration names, addresses, the cgroup driver. It changes nothing.
func (c config) tryHere() error {
	var errs []error
	field := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	_, err := cgroup.New(c.CgroupDriver)
	field("cgroup_driver", err)
	if c.Shim != "" {
		_, err = findShim(c.Shim)
		field("shim", err)
	}
	field("images.hosts_dir", hosts.Check(c.Images.HostsDir))
	_, err = classes.Read(c.Overhead.Classes)
	field("overhead.classes", err)
	if c.Stream.TLSCertFile != "" {
		_, err = tls.LoadX509KeyPair(c.Stream.TLSCertFile, c.Stream.TLSKeyFile)
		field("stream.tls_cert_file", err)
	}
	field("stream.address", tryAddress(c.Stream.Address))
	if host := c.Page.Host(); host != "" {
		field("page.address", tryAddress(host))
	}
	return errors.Join(errs...)
}

// tryAddress refuses an address that this machine does not have. The port is any: a server that
// runs has its own.
func tryAddress(address string) error {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(ip, 0).String())
	if err != nil {
		return err
	}
	return l.Close()
}
