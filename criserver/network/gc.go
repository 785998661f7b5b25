package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/host/durable"
)

// gc removes the leases, host ports and links of pods that are not kept.
func (e *embedded) gc(keep map[string]bool) error {
	var errs []error
	for _, l := range e.book.All() {
		if !keep[l.Pod] {
			e.log.Info("removing network of dead pod", "pod", l.Pod, "addresses", l.Addrs)
			errs = append(errs, e.remove(l, ""))
		}
	}
	return errors.Join(append(errs, e.gcLinks(keep))...)
}

// gcLinks deletes host ends in our bridge whose pod is not kept: something has kept their namespace
// alive.
func (e *embedded) gcLinks(keep map[string]bool) error {
	bridge, err := findBridge(e.host, e.bridge)
	if err != nil || bridge == nil {
		return err
	}
	kept := map[string]bool{}
	for id := range keep {
		kept[hostEnd(id)] = true
	}
	links, err := dump(e.host.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var errs []error
	for _, l := range links {
		a := l.Attrs()
		if a.MasterIndex == bridge.Attrs().Index && isHostEnd(a.Name) && !kept[a.Name] {
			e.log.Info("removing link of dead pod", "link", a.Name)
			errs = append(errs, deleteLink(e.host, a.Name))
		}
	}
	return errors.Join(errs...)
}

// gcPins takes away the pins of pods that are not kept, if a network namespace is among them: pods
// on the node's network are none of ours, and their pins not either.
func gcPins(sandboxesDir string, keep map[string]bool) error {
	if sandboxesDir == "" {
		return nil
	}
	dirs, err := os.ReadDir(sandboxesDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		dir := filepath.Join(sandboxesDir, d.Name(), "ns")
		if !keep[d.Name()] && netns.Pinned(filepath.Join(dir, netns.NetFile)) {
			errs = append(errs, netns.UnpinNamespaces(dir))
		}
	}
	return errors.Join(errs...)
}

// destroy removes everything of this network from the kernel and the disk: rules, links of pods,
// the bridge, the book.
func (e *embedded) destroy() error {
	var errs []error
	for _, l := range e.book.All() {
		errs = append(errs, deleteLink(e.host, hostEnd(l.Pod)))
	}
	errs = append(errs, e.gcLinks(nil), e.wall.Delete())
	bridge, err := findBridge(e.host, e.bridge)
	if bridge != nil {
		err = deleteLink(e.host, e.bridge)
	}
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return durable.Remove(e.stateDir, choiceFile, leasesFile, leasesFile+".lock", announcedFile)
}
