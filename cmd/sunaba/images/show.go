// Package images shows images, and what is done with them, to people and to programs.
package images

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
)

// image is an image in JSON.
type image struct {
	ID       string               `json:"id"`
	Tags     []string             `json:"tags"`
	Digests  []string             `json:"digests"`
	Platform string               `json:"platform"`
	Handlers []string             `json:"handlers"`
	Kind     string               `json:"kind"`
	Size     int64                `json:"size"`
	Pinned   bool                 `json:"pinned"`
	Created  *time.Time           `json:"created,omitempty"`
	Config   *ocispec.ImageConfig `json:"config,omitempty"`
	Manifest string               `json:"manifest"`
	Module   string               `json:"module,omitempty"`
	// Component is what the configuration of an artifact says of its component.
	Component *manifest.Component `json:"component,omitempty"`
	Served    map[string][]string `json:"served,omitempty"`
}

func view(img images.Image) image {
	v := image{
		ID: img.ID, Tags: list(img.RepoTags), Digests: list(img.RepoDigests), Platform: platforms.FormatAll(img.Platform), Handlers: list(img.Handlers),
		Kind: img.Kind.String(), Size: img.Size, Pinned: img.Pinned, Manifest: img.Manifest.Digest.String(), Module: img.Module.Digest.String(),
	}
	if !img.Created.IsZero() {
		v.Created = &img.Created
	}
	return v
}

// list is a list that is shown even if it is empty.
func list(s []string) []string { return append([]string{}, s...) }

// Images shows images in a format of output, sorted by name; of one name, those built last come
// first.
func Images(w io.Writer, imgs []images.Image, format string) error {
	rows := Sorted(imgs)
	if output.ForPrograms(format) {
		views, seen := []image{}, map[string]bool{}
		for _, r := range rows {
			if !seen[r.ID] {
				views = append(views, view(r.Image))
			}
			seen[r.ID] = true
		}
		return output.Encode(w, views, format)
	}
	if format == output.Name {
		var names []string
		for _, r := range rows {
			names = append(names, r.Name)
		}
		return lines(w, names)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	head := "NAME\tID\tPLATFORM\tHANDLERS\tKIND\tSIZE\tPINNED"
	if format == output.Wide {
		head += "\tCREATED\tMANIFEST"
	}
	fmt.Fprintln(t, head)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s", r.Name, shortID(r.ID), platforms.FormatAll(r.Platform),
			cmp.Or(strings.Join(r.Handlers, ","), "-"), r.Kind, units.Bytes(r.Size), yes(r.Pinned))
		if format == output.Wide {
			fmt.Fprintf(t, "\t%s\t%s", created(r.Image), r.Manifest.Digest)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func created(img images.Image) string {
	if img.Created.IsZero() {
		return "-"
	}
	return img.Created.UTC().Format(time.DateTime)
}

// IDs prints the ids of images.
func IDs(w io.Writer, imgs []images.Image) error {
	var ids []string
	for _, r := range Sorted(imgs) {
		if !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return lines(w, ids)
}

// lines prints each text once; equal ones stand together or not at all.
func lines(w io.Writer, texts []string) error {
	for _, text := range slices.Compact(texts) {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

func shortID(id string) string {
	_, hex, _ := strings.Cut(id, ":")
	return hex[:min(12, len(hex))]
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// Inspect shows all that is known of an image, as JSON or YAML.
func Inspect(w io.Writer, img images.Image, format string) error {
	v := view(img)
	v.Config, v.Component, v.Served = &img.Config, img.Component, map[string][]string{}
	for host, digests := range img.Served {
		for _, d := range digests {
			v.Served[host] = append(v.Served[host], d.String())
		}
	}
	return output.Encode(w, v, format)
}

// Done is what was done with a name.
type Done struct{ Verb, Name string }

// AllDone says what was done with names: for programs by verb, each of verbs even if it is empty.
func AllDone(w io.Writer, verbs []string, done []Done, asJSON bool) error {
	if asJSON {
		names := map[string][]string{}
		for _, verb := range verbs {
			names[verb] = []string{}
		}
		for _, d := range done {
			names[d.Verb] = append(names[d.Verb], d.Name)
		}
		return output.Encode(w, names, output.JSON)
	}
	for _, d := range done {
		if _, err := fmt.Fprintln(w, d.Verb, d.Name); err != nil {
			return err
		}
	}
	return nil
}

// Pushed says what a push did.
func Pushed(w io.Writer, p images.Pushed, format string) error {
	name, _, isDigest := strings.Cut(p.Name, "@")
	if !isDigest {
		name = p.Name
	}
	switch {
	case output.ForPrograms(format):
		return output.Encode(w, p, format)
	case format == output.Name:
		_, err := fmt.Fprintf(w, "%s@%s\n", name, p.Digest)
		return err
	}
	_, err := fmt.Fprintf(w, "pushed %s@%s: %d blobs sent (%s), %d mounted, %d present already\n",
		name, p.Digest, p.Sent, units.Bytes(p.Bytes), p.Mounted, p.Present)
	return err
}

// Report shows what a check has found.
func Report(w io.Writer, r images.CheckReport, asJSON bool) error {
	if asJSON {
		return output.Encode(w, r, output.JSON)
	}
	for _, d := range r.Damaged {
		fmt.Fprintf(w, "%s (%s):\n", shortID(d.Image), strings.Join(d.Names, ", "))
		for _, what := range d.What {
			fmt.Fprintf(w, "    %s\n", what)
		}
		switch {
		case d.Dropped:
			fmt.Fprintf(w, "    dropped: %s\n", d.Why)
			fmt.Fprintln(w, "    to do: sunaba images pull, by one of its names, once its registry answers; or sunaba images import of an archive of it")
		case len(d.Lost) > 0:
			fmt.Fprintf(w, "    lost its names %s: %s\n", strings.Join(d.Lost, ", "), d.Why)
			fmt.Fprintf(w, "    to do: sunaba images pull, by these names, once their registry answers; or sunaba images tag %s\n", shortID(d.Image))
		case d.Repaired:
			fmt.Fprintln(w, "    fetched again")
		default:
			fmt.Fprintln(w, "    to do: sunaba images check --repair")
		}
	}
	for _, wrong := range r.Records {
		fmt.Fprintf(w, "records: %s\n", wrong)
	}
	_, err := fmt.Fprintf(w, "%d images, %d damaged\n", r.Images, len(r.Damaged))
	return err
}

// Garbage says what was removed, or would be.
func Garbage(w io.Writer, g images.Garbage, dryRun, asJSON bool) error {
	if asJSON {
		return output.Encode(w, g, output.JSON)
	}
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	_, err := fmt.Fprintf(w, "%s %d blobs, %d layers and %d compiled modules, %s\n", verb, g.Blobs, g.Layers, g.Modules, units.Bytes(g.Bytes))
	return err
}

// Export writes an archive to where it is wanted: stdout for "-", a folder if to
// ends with a slash, else a file. Where that fails nothing is left.
func Export(stdout io.Writer, to string, write func(io.Writer) error) error {
	switch {
	case to == "-":
		if IsTerminal(stdout) {
			return errors.New("images export: an archive is nothing for a terminal; say where to with --output")
		}
		return write(stdout)
	case strings.HasSuffix(to, "/"):
		return exportFolder(to, write)
	}
	f, err := durable.Create(to)
	if err != nil {
		return fmt.Errorf("write images: %w", err)
	}
	if err := errors.Join(write(f), f.Chmod(0o644)); err != nil {
		return errors.Join(err, f.Discard())
	}
	return f.Commit()
}

func exportFolder(dir string, write func(io.Writer) error) error {
	_, err := os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := layout.Unpack(r, dir)
		r.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		unpacked <- err
	}()
	wrote := write(w)
	w.CloseWithError(wrote)
	uerr := <-unpacked
	if uerr == nil && wrote == nil {
		return nil
	}
	if isNew {
		return errors.Join(wrote, uerr, os.RemoveAll(dir))
	}
	return errors.Join(wrote, uerr)
}
