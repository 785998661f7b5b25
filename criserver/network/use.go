package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Use says when the embedded network connects pods.
type Use string

// The values of Use.
const (
	// UseAuto is as UseAlways, until a network of the cluster is announced, see Announced.
	UseAuto Use = "auto"
	// UseAlways connects pods whenever there is no CNI configuration.
	UseAlways Use = "always"
	// UseNever leaves pods to CNI plugins: without a configuration the network is not ready.
	UseNever Use = "never"
)

// Uses are the values of Use.
func Uses() []string { return []string{string(UseAuto), string(UseAlways), string(UseNever)} }

// Starter is a Network that makes what pods share. Before Start, or a first Setup or Status,
// nothing of it is in the kernel, so that a server that fails to start leaves nothing.
type Starter interface {
	// Start makes it now, where pods need it. What it could not make is logged, and the next Setup
	// or Status tries again.
	Start()
}

// Announced is a Network that waits for a CNI configuration once it is told that one will come.
type Announced interface {
	// Mounts tells what folders of the node a container may write. A container that may write the
	// folder of the CNI configurations is the one that installs the cluster's network: from then on
	// pods wait for its configuration, with UseAuto, also after a restart of the server.
	Mounts(folders []string) error
}

// announcedFile is in StateDir once a network was announced.
const announcedFile = "announced"

// checkUse refuses a value that is not one of Uses.
func checkUse(u Use) error {
	switch u {
	case "", UseAuto, UseAlways, UseNever:
		return nil
	}
	return fmt.Errorf("use of the embedded network %q is not one of %q: %w", u, Uses(), errdefs.ErrInvalidArgument)
}

// Start implements Starter.
func (s *switching) Start() {
	_, found, err := findConfig(s.confDir)
	if found && err != nil {
		s.embedded.log.Warn("failed to read CNI configuration", "error", err)
	}
	// Pods of the embedded network live on beside those of another one.
	if len(s.embedded.book.All()) == 0 && (found || s.waits() != nil) {
		return
	}
	if _, err := s.embedded.ensure(true); err != nil {
		s.embedded.log.Warn("failed to set up pod network", "error", err)
	}
}

// waits says why the embedded network does not connect pods while there is no CNI configuration,
// nil if it does.
func (s *switching) waits() error {
	if s.use == UseNever {
		return fmt.Errorf("no CNI configuration in %q, and network.embedded is %q: install the network of the cluster: %w", s.confDir, UseNever, errdefs.ErrUnavailable)
	}
	if s.use == UseAlways {
		return nil
	}
	switch _, err := os.Stat(s.announced()); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look whether a network was announced: %w: %w", err, errdefs.ErrUnavailable)
	}
	return fmt.Errorf("no CNI configuration in %q yet, and a container that may write this folder was made to install one"+
		" (network.embedded = %q does not wait for it): %w", s.confDir, UseAlways, errdefs.ErrUnavailable)
}

func (s *switching) announced() string { return filepath.Join(s.embedded.stateDir, announcedFile) }

// Mounts implements Announced.
func (s *switching) Mounts(folders []string) error {
	if s.use == UseAlways || s.use == UseNever || s.confDir == "" {
		return nil
	}
	conf := filepath.Clean(s.confDir)
	at := slices.IndexFunc(folders, func(folder string) bool {
		folder = filepath.Clean(folder)
		return folder == conf || folder == filepath.Dir(conf) // some mount the folder above it, which has nothing else
	})
	if at < 0 || s.waits() != nil {
		return nil
	}
	folder := filepath.Clean(folders[at])
	if err := durable.Replace(s.announced(), []byte(folder+"\n"), 0o600); err != nil {
		return fmt.Errorf("note that a network is announced: %w", err)
	}
	s.embedded.log.Info("a container installs a network: pods wait for its CNI configuration", "folder", folder)
	return nil
}
