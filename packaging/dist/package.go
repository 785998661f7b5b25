package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// writePackage writes the files below tree as a package of a format and returns its name.
func (o options) writePackage(format string, a arch, tree string) (name string, err error) {
	packager, ok := map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM}[format]
	if !ok {
		return "", fmt.Errorf("format %q is not tar, deb or rpm", format)
	}
	contents, err := contentsOf(tree)
	if err != nil {
		return "", err
	}
	machine := a.deb
	if format == "rpm" {
		machine = a.rpm
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "sunaba", Arch: machine, Platform: "linux", Version: o.version, Release: "1", Section: "admin", Priority: "optional",
		Maintainer: "The Sunaba authors <https://github.com/sunaba-project/sunaba>", License: "Apache-2.0", Homepage: "https://github.com/sunaba-project/sunaba",
		Description: "Kubernetes pods as Linux containers or as WebAssembly guests\n" +
			"A CRI v1 server for one node, for a kubelet, crictl, or a folder of\n" +
			"manifests without a cluster, and its shim, which is a runtime of\n" +
			"containerd too.",
		MTime: o.date,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(o.source, "postinstall.sh"), PreRemove: filepath.Join(o.source, "preremove.sh"),
				PostRemove: filepath.Join(o.source, "postremove.sh"),
			},
			RPM: nfpm.RPM{BuildHost: "localhost", Compression: "gzip:9"},
			Deb: nfpm.Deb{Arch: a.deb, Compression: "gzip"},
		},
	})
	// Linux containers need one of them; guests need neither.
	if format == "deb" {
		info.Recommends = []string{"runc | crun"}
	} else {
		info.Recommends = []string{"(runc or crun)"}
		info.RPM.Arch = a.rpm
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	name = packager.ConventionalFileName(info)
	f, err := os.Create(filepath.Join(o.out, name))
	if err != nil {
		return "", err
	}
	return name, errors.Join(packager.Package(info, f), f.Close())
}

// contentsOf are the files below tree. What is below /etc is the administrator's to change.
func contentsOf(tree string) (files.Contents, error) {
	var all files.Contents
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		c := &files.Content{Source: path, Destination: "/" + rel, FileInfo: &files.ContentFileInfo{Mode: info.Mode().Perm()}}
		if strings.HasPrefix(c.Destination, "/etc/") {
			c.Type = files.TypeConfigNoReplace
		}
		all = append(all, c)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("folder %q is empty", tree)
	}
	return all, err
}
