// Package images shows images, and what is done with them, to people and to programs.
package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Images shows a list of images.
func Images(w io.Writer, imgs []images.Image, asJSON bool) error {
	if asJSON {
		views := []image{}
		for _, img := range imgs {
			views = append(views, view(img))
		}
		return encode(w, views)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tID\tPLATFORM\tHANDLERS\tKIND\tSIZE\tPINNED")
	for _, img := range imgs {
		names := img.RepoTags
		if len(names) == 0 {
			names = img.RepoDigests
		}
		for _, name := range names {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, shortID(img.ID), platforms.FormatAll(img.Platform),
				orDash(strings.Join(img.Handlers, ",")), img.Kind, units.Bytes(img.Size), yes(img.Pinned))
		}
	}
	return t.Flush()
}

func shortID(id string) string {
	_, hex, _ := strings.Cut(id, ":")
	return hex[:min(12, len(hex))]
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// Inspect shows all that is known of an image.
func Inspect(w io.Writer, img images.Image) error {
	v := view(img)
	v.Config, v.Component, v.Served = &img.Config, img.Component, map[string][]string{}
	for host, digests := range img.Served {
		for _, d := range digests {
			v.Served[host] = append(v.Served[host], d.String())
		}
	}
	return encode(w, v)
}

// Names says what was done with names.
func Names(w io.Writer, done string, names []string, asJSON bool) error {
	if asJSON {
		return encode(w, map[string][]string{done: list(names)})
	}
	for _, n := range names {
		if _, err := fmt.Fprintln(w, done, n); err != nil {
			return err
		}
	}
	return nil
}

// Report shows what a check has found.
func Report(w io.Writer, r images.CheckReport, asJSON bool) error {
	if asJSON {
		return encode(w, r)
	}
	for _, d := range r.Damaged {
		fmt.Fprintf(w, "%s (%s):\n", shortID(d.Image), strings.Join(d.Names, ", "))
		for _, what := range d.What {
			fmt.Fprintf(w, "    %s\n", what)
		}
		switch {
		case d.Repaired:
			fmt.Fprintln(w, "    fetched again")
		case d.Dropped:
			fmt.Fprintf(w, "    dropped, the next pull brings it: %s\n", d.Why)
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
		return encode(w, g)
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
