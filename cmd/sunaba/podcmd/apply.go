package podcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// maxManifest bounds a manifest, in bytes, as in a folder that is watched.
const maxManifest = 10 << 20

func applyCommand() *cli.Command {
	server := objects.WithAgent(apply)
	return &cli.Command{
		Name:      "apply",
		Usage:     "make or change the objects of manifests; they are kept until they are deleted",
		ArgsUsage: " ",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), filesFlag("`FILE` or folder with manifests; - is stdin"),
			&cli.StringFlag{Name: "dry-run", Usage: "only check, at `WHERE`: client (needs no server), server, or none", Value: "none"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() > 0 || len(cmd.StringSlice("filename")) == 0 {
				return errors.New("apply: want manifests as -f FILE, and nothing else")
			}
			switch where := cmd.String("dry-run"); where {
			case "client":
				return check(cmd)
			case "server", "none":
				return server(ctx, cmd)
			default:
				return fmt.Errorf("apply: --dry-run=%s: must be client, server or none", where)
			}
		},
	}
}

// document is a manifest and where it is from.
type document struct {
	file string
	data []byte
}

// documents reads the manifests that -f names.
func documents(cmd *cli.Command) ([]document, error) {
	var all []document
	for _, name := range cmd.StringSlice("filename") {
		read, err := readManifests(name, cmd.Root().Reader)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cmd.Name, err)
		}
		all = append(all, read...)
	}
	return all, nil
}

func readManifests(name string, stdin io.Reader) ([]document, error) {
	if name == "-" {
		data, err := readManifest("stdin", stdin)
		return []document{{"stdin", data}}, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if !info.IsDir() {
		f, err := os.Open(name) // also a pipe, if that is what the user names
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		defer f.Close()
		data, err := readManifest(name, f)
		return []document{{name, data}}, err
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	var all []document
	for _, e := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) || e.IsDir() || e.Name()[0] == '.' {
			continue
		}
		path := filepath.Join(name, e.Name())
		f, err := regular.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		data, err := readManifest(path, f)
		f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, document{path, data})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read manifests: folder %q has no *.yaml, *.yml or *.json", name)
	}
	return all, nil
}

func readManifest(name string, from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w", name, err)
	}
	if len(data) > maxManifest {
		return nil, fmt.Errorf("read manifest %q: it is longer than %d bytes", name, maxManifest)
	}
	return data, nil
}

// namespaceOf is the namespace that the user named, "" if none.
func namespaceOf(cmd *cli.Command) string {
	if !cmd.IsSet("namespace") {
		return ""
	}
	return cmd.String("namespace")
}

func apply(ctx context.Context, cmd *cli.Command, c *api.Client) error {
	all, err := documents(cmd)
	if err != nil {
		return err
	}
	dryRun, suffix := cmd.String("dry-run") == "server", ""
	if dryRun {
		suffix = " (server dry run)"
	}
	var errs []error
	for _, d := range all {
		result, err := c.Apply(ctx, api.ApplyRequest{File: d.file, Data: d.data, Namespace: namespaceOf(cmd), DryRun: dryRun})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		warn(cmd, result.Notes)
		for _, a := range result.Applied {
			if _, err := fmt.Fprintf(cmd.Root().Writer, "%s %s%s\n", keyName(a.Key), a.Verb, suffix); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// check is apply without a server: the manifests are read and judged, and nothing is compared.
func check(cmd *cli.Command) error {
	all, err := documents(cmd)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		objects, notes, err := manifest.Parse(d.file, d.data, manifest.Options{Namespace: namespaceOf(cmd)})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		warn(cmd, notes)
		for _, o := range objects {
			if n := namespaceOf(cmd); n != "" && o.Namespace != "" && o.Namespace != n {
				errs = append(errs, fmt.Errorf("%s: %s: its namespace is not that of --namespace=%s", d.file, o.Key, n))
				continue
			}
			if _, err := fmt.Fprintf(cmd.Root().Writer, "%s created (dry run)\n", keyName(o.Key)); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

func warn(cmd *cli.Command, notes []string) {
	for _, n := range notes {
		fmt.Fprintln(cmd.Root().ErrWriter, "Warning:", n)
	}
}

// keyName is an object as kubectl prints it: "pod/web".
func keyName(k manifest.Key) string {
	if r, ok := api.FindResource(k.Kind); ok {
		return objects.Target{Resource: r, Name: k.Name}.String()
	}
	return k.String()
}
