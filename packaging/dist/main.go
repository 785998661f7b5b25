// Command dist makes what is published of a version: for each architecture an archive and packages
// for Debian and Fedora with both programs, then checksums and a list of all that is in the programs.
// The same sources, version and date make the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// arch is a machine, by Go's name, and what it is called elsewhere.
type arch struct{ name, archive, deb, rpm string }

var arches = []arch{
	{"amd64", "amd64", "amd64", "x86_64"},
	{"arm64", "arm64", "arm64", "aarch64"},
	{"arm", "armv7", "armhf", "armv7hl"},
	{"riscv64", "riscv64", "riscv64", "riscv64"},
}

type options struct {
	version  string
	date     time.Time
	programs string // a folder for each architecture with both programs
	share    string
	out      string
	source   string // this folder
	formats  []string
}

func main() {
	var o options
	epoch := flag.Int64("date", 0, "the date of all files, in `SECONDS` since 1970")
	flag.StringVar(&o.version, "version", "", "the `VERSION`, as \"sunaba version\" prints it")
	flag.StringVar(&o.programs, "programs", "", "the `FOLDER` with a folder for each architecture, with both programs")
	flag.StringVar(&o.share, "share", "", "the `FOLDER` that \"make share\" has made")
	flag.StringVar(&o.out, "out", "", "the `FOLDER` to write to")
	flag.StringVar(&o.source, "source", ".", "the `FOLDER` packaging of the sources")
	only := flag.String("only", "", "`ARCHITECTURES` to make, with commas between them; all without it")
	formats := flag.String("formats", "tar,deb,rpm", "`FORMATS` to make, with commas between them")
	flag.Parse()
	o.formats = strings.Split(*formats, ",")
	o.date = time.Unix(*epoch, 0).UTC()
	if err := o.make(*only); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func (o options) make(only string) error {
	if o.version == "" || o.programs == "" || o.share == "" || o.out == "" {
		return fmt.Errorf("want -version, -programs, -share and -out")
	}
	source, err := filepath.Abs(o.source)
	if err != nil {
		return err
	}
	o.source = source
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	var made []string
	for _, a := range arches {
		if only != "" && !strings.Contains(","+only+",", ","+a.name+",") {
			continue
		}
		files, err := o.makeFor(a)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		made = append(made, files...)
	}
	if len(made) == 0 {
		return fmt.Errorf("no architecture is called %q", only)
	}
	return writeSums(o.out, made)
}

// makeFor makes the files of one architecture and returns their names.
func (o options) makeFor(a arch) ([]string, error) {
	programs := filepath.Join(o.programs, a.name)
	name := fmt.Sprintf("sunaba-%s-linux-%s", o.version, a.archive)
	bill := name + ".spdx.json"
	made := []string{bill}
	for _, format := range o.formats {
		var file string
		var err error
		if format == "tar" {
			file = name + ".tar.gz"
			err = o.staged("/usr/local", "/usr/local/lib/systemd/system", programs, func(tree string) error {
				return writeArchive(filepath.Join(o.out, file), filepath.Join(tree, "usr/local"), name, o.date)
			})
		} else {
			err = o.staged("/usr", "/usr/lib/systemd/system", programs, func(tree string) (err error) {
				file, err = o.writePackage(format, a, tree)
				return err
			})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", format, err)
		}
		made = append(made, file)
	}
	return made, writeBill(filepath.Join(o.out, bill), name, o.version, o.date,
		filepath.Join(programs, "sunaba"), filepath.Join(programs, "containerd-shim-sunaba-v1"))
}

// staged lays out what is installed below a folder that lives as long as use runs.
func (o options) staged(prefix, units, programs string, use func(tree string) error) error {
	tree, err := os.MkdirTemp("", "sunaba-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	out, err := exec.Command(filepath.Join(o.source, "install.sh"), "install", tree, prefix, units, programs, o.share).CombinedOutput()
	if err != nil {
		return fmt.Errorf("lay out files: %w: %s", err, out)
	}
	return use(tree)
}
