package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// writeBill writes which modules are in which program, as SPDX 2.3: what the Go linker has recorded
// in the programs themselves.
func writeBill(file, name, version string, date time.Time, programs ...string) error {
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: "https://github.com/sunaba-project/sunaba/spdx/" + name,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "The Sunaba authors"}, {CreatorType: "Tool", Creator: "sunaba-dist"}},
			Created:  date.Format(time.RFC3339),
		},
	}
	known := map[string]bool{}
	module := func(path, version, license string) common.ElementID {
		id := common.ElementID("module-" + plain(path+"-"+version))
		if !known[path+"@"+version] {
			known[path+"@"+version] = true
			doc.Packages = append(doc.Packages, &v2_3.Package{
				PackageName: path, PackageVersion: version, PackageSPDXIdentifier: id, PackageDownloadLocation: "NOASSERTION",
				PackageLicenseConcluded: license, PackageLicenseDeclared: license, PackageCopyrightText: "NOASSERTION",
				PackageExternalReferences: []*v2_3.PackageExternalReference{{
					Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl(path, version),
				}},
			})
		}
		return id
	}
	relate := func(from common.ElementID, how string, to common.ElementID) {
		doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(from)), Relationship: how, RefB: common.MakeDocElementID("", string(to)),
		})
	}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p)
		if err != nil {
			return fmt.Errorf("read which modules are in it: %w", err)
		}
		sum, err := sumOf(p)
		if err != nil {
			return err
		}
		id := common.ElementID("program-" + plain(filepath.Base(p)))
		doc.Packages = append(doc.Packages, &v2_3.Package{
			PackageName: filepath.Base(p), PackageVersion: version, PackageSPDXIdentifier: id, PackageDownloadLocation: "NOASSERTION",
			PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: "NOASSERTION", PrimaryPackagePurpose: "APPLICATION",
			PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: sum}},
		})
		relate("DOCUMENT", common.TypeRelationshipDescribe, id)
		relate(id, common.TypeRelationshipContains, module("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause"))
		deps := slices.Clone(info.Deps)
		slices.SortFunc(deps, func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) })
		for _, d := range deps {
			if d.Replace != nil {
				d = d.Replace
			}
			relate(id, common.TypeRelationshipContains, module(d.Path, d.Version, "NOASSERTION"))
		}
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := json.Write(doc, f, json.Indent("  ")); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// purl names a Go module as a package URL does.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// plain is a text with the characters that an SPDX identifier may have.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, text)
}
