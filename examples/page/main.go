// Command page keeps a web page up to date with a ConfigMap while it runs. It reads the folder in
// which the kubelet shows a ConfigMap, puts its values into its template, and writes the page for a
// server beside it:
//
//	GOOS=wasip1 GOARCH=wasm go build -o page.wasm .
//
// The kubelet writes each version to a folder of its own and then exchanges the symbolic link
// "..data", which is what every file's link goes through. So a version is read whole by reading the
// link once, and the files in the folder that it names.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// data is the kubelet's link to the folder of the present version.
const data = "..data"

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	config := flags.String("config", "/config", "`FOLDER` of the ConfigMap")
	out := flags.String("out", "/www/index.html", "`FILE` to write")
	every := flags.Duration("every", 200*time.Millisecond, "`TIME` between looks at the ConfigMap")
	once := flags.Bool("once", false, "write the page once and end")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	for last := ""; ; time.Sleep(*every) {
		version, err := os.Readlink(filepath.Join(*config, data))
		if err == nil && version != last {
			err = write(*config, version, *out)
		}
		switch {
		case errors.Is(err, os.ErrNotExist) && last != "":
			continue // the version went while it was read; the next one is there
		case err != nil:
			fmt.Fprintln(stderr, "page:", err)
			return 1
		case version != last:
			fmt.Fprintln(stdout, "page: written from", version)
			last = version
		}
		if *once {
			return 0
		}
	}
}

// write makes the page of one version. Readers see the old page or the new one, never a part.
func write(config, version, out string) error {
	template, err := os.ReadFile(filepath.Join(config, version, "template"))
	if err != nil {
		return err
	}
	var missing error
	page := os.Expand(string(template), func(key string) string {
		value, err := os.ReadFile(filepath.Join(config, version, key))
		missing = errors.Join(missing, err)
		return string(value)
	})
	if missing != nil {
		return missing
	}
	next := out + ".next"
	if err := os.WriteFile(next, []byte(page), 0o644); err != nil {
		return err
	}
	return os.Rename(next, out)
}
