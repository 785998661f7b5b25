package wasm

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim/annotation"
)

// Listener is a TCP port that is open before the guest starts.
type Listener = annotation.Listener

// User is whom a guest runs as. Root becomes nobody.
type User struct{ UID, GID uint32 }

// CheckTexts refuses what is not UTF-8: bundles, manifests and images would have other bytes in the
// place of those that are not.
func CheckTexts(texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q is not UTF-8, as what a guest is given must be: %w", text, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// ParseEnv reads K=V, or K for what this process has under that name.
func ParseEnv(texts []string) ([]string, error) {
	var env []string
	for _, text := range texts {
		name, _, given := strings.Cut(text, "=")
		if name == "" {
			return nil, fmt.Errorf("variable %q has no name: %w", text, errdefs.ErrInvalidArgument)
		}
		if !given {
			value, ok := os.LookupEnv(name)
			if !ok {
				continue
			}
			text = name + "=" + value
		}
		env = append(env, text)
	}
	return env, CheckTexts(env...)
}

// ParseDirs reads HOST:GUEST, or HOST for what is to have the same path in the guest, with :ro
// behind it for what is only to be read. A relative HOST alone has this path from the guest's root,
// which "." becomes: programs find it there by the same relative path.
func ParseDirs(texts []string) ([]specs.Mount, error) {
	var mounts []specs.Mount
	for _, text := range texts {
		rest, readOnly := strings.CutSuffix(text, ":ro")
		rest = strings.TrimSuffix(rest, ":rw")
		host, guest := rest, ""
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			host, guest = rest[:i], rest[i+1:]
		}
		if host == "" {
			return nil, fmt.Errorf("directory %q is not HOST, HOST:GUEST or either with :ro: %w", text, errdefs.ErrInvalidArgument)
		}
		relative := !filepath.IsAbs(host) && guest == "" && !strings.Contains(rest, ":")
		if relative && !filepath.IsLocal(host) {
			return nil, fmt.Errorf("directory %q leads out of the working directory: say where the guest has it, as in %s:/work: %w", text, host, errdefs.ErrInvalidArgument)
		}
		if relative {
			guest = path.Join("/", host)
		}
		host, err := filepath.Abs(host)
		if err == nil {
			err = CheckTexts(host, guest)
		}
		if err != nil {
			return nil, err
		}
		if !relative && !strings.Contains(rest, ":") {
			guest = host
		}
		if !path.IsAbs(guest) || path.Clean(guest) == "/" && !relative {
			return nil, fmt.Errorf("directory %q: %q is not an absolute path below the guest's root, which is an empty directory: %w", text, guest, errdefs.ErrInvalidArgument)
		}
		if _, err := os.Stat(host); err != nil {
			return nil, fmt.Errorf("directory %q: %w", text, err)
		}
		mounts = append(mounts, bind(host, path.Clean(guest), readOnly))
	}
	return mounts, nil
}

func bind(host, guest string, readOnly bool) specs.Mount {
	m := specs.Mount{Type: "bind", Source: host, Destination: guest, Options: []string{"rbind", "rw"}}
	if readOnly {
		m.Options[1] = "ro"
	}
	return m
}

// ParseListen reads PORT, which means every address of the node, or ADDRESS:PORT.
func ParseListen(texts []string) ([]Listener, error) {
	var all []Listener
	for _, text := range texts {
		l := Listener{}
		port := text
		if strings.Contains(text, ":") {
			var err error
			if l.Address, port, err = net.SplitHostPort(text); err != nil {
				return nil, fmt.Errorf("listen on %q: %w: %w", text, err, errdefs.ErrInvalidArgument)
			}
		}
		if l.Address != "" {
			address, err := netip.ParseAddr(l.Address)
			if err != nil || address.Zone() != "" {
				return nil, fmt.Errorf("listen on %q: %q is not an IP address: %w", text, l.Address, errdefs.ErrInvalidArgument)
			}
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("listen on %q: %q is not a port from 1 to 65535: %w", text, port, errdefs.ErrInvalidArgument)
		}
		l.Port, l.Name = uint16(n), "port-"+port
		all = append(all, l)
	}
	return all, nil
}

// ParseUser reads UID or UID:GID; the group is the same number if it is not given. "" is nobody.
func ParseUser(text string) (*User, error) {
	if text == "" {
		return nil, nil
	}
	uid, gid, given := strings.Cut(text, ":")
	if !given {
		gid = uid
	}
	u, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %q is not UID or UID:GID: %w", text, errdefs.ErrInvalidArgument)
	}
	g, err := strconv.ParseUint(gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %q is not UID or UID:GID: %w", text, errdefs.ErrInvalidArgument)
	}
	return &User{UID: uint32(u), GID: uint32(g)}, nil
}
