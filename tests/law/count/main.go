// Command count prints how large the project is: `go run ./tests/law/count [ROOT]`. It counts what
// ships, folder by folder: no tests, no examples, and no packages that only tests import.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/sunaba-project/sunaba/tests/law/source"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := count(os.Stdout, root); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

func count(w io.Writer, root string) error {
	files, err := source.Read(root)
	if err != nil {
		return err
	}
	sizes := source.Sizes(source.Production(files))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "files\tlines\tcode\t  folder")
	var total source.Size
	for _, folder := range slices.Sorted(maps.Keys(sizes)) {
		s := sizes[folder]
		fmt.Fprintf(table, "%d\t%d\t%d\t  %s\n", s.Files, s.Lines, s.Code, folder)
		total = source.Size{Files: total.Files + s.Files, Lines: total.Lines + s.Lines, Code: total.Code + s.Code}
	}
	fmt.Fprintf(table, "%d\t%d\t%d\t  total\n", total.Files, total.Lines, total.Code)
	return table.Flush()
}
