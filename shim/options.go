package shim

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/message"
)

// DecodeOptions reads how a caller of the Task API wants its containers to be run: runc's options
// as our server and containerd's clients send them, or those that containerd's CRI makes of a
// runtime's options table. root is the OCI runtime's --root for those that name none; what they
// name has a folder for each namespace, as with containerd's own shim.
//
// # Errors
//
// ErrInvalidArgument for another type, an unknown option, and a value of the wrong kind.
func DecodeOptions(value *message.Any, root, namespace string) (Options, error) {
	given, err := givenOptions(value)
	switch {
	case err != nil:
		return Options{Root: root}, err
	case given.Root == "":
		given.Root = root
	case !filepath.IsAbs(given.Root):
		return Options{Root: root}, fmt.Errorf("runtime root %q: path is not absolute: %w", given.Root, errdefs.ErrInvalidArgument)
	default:
		given.Root = filepath.Join(given.Root, namespace)
	}
	return given, nil
}

// CheckpointOptions reads runc's options, as containerd's clients and our server send them.
func CheckpointOptions(path string, value *message.Any) (c Checkpoint, err error) {
	switch name := messageName(value); name {
	case "":
	case message.CheckpointOptionsName:
		if err := message.Unmarshal(value.Value, &c); err != nil {
			return c, fmt.Errorf("decode options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
	default:
		return c, fmt.Errorf("options are %q, not %s: %w", value.TypeURL, message.CheckpointOptionsName, errdefs.ErrInvalidArgument)
	}
	c.Images = cmp.Or(c.Images, path)
	if !filepath.IsAbs(c.Images) || c.Work != "" && !filepath.IsAbs(c.Work) {
		return c, fmt.Errorf("paths %q and %q are not absolute: %w", c.Images, c.Work, errdefs.ErrInvalidArgument)
	}
	return c, nil
}

// IsOptions says whether a message is one that DecodeOptions knows.
func IsOptions(value *message.Any) bool {
	name := messageName(value)
	return name == message.RuncOptionsName || name == message.RuntimeOptionsName
}

func messageName(value *message.Any) string {
	name := cmp.Or(value, &message.Any{}).TypeURL
	return name[strings.LastIndexByte(name, '/')+1:]
}

// givenOptions reads the options as they were given, by the name of their type.
func givenOptions(value *message.Any) (o Options, err error) {
	switch name := messageName(value); name {
	case "":
		return o, nil
	case message.RuncOptionsName:
		if err := message.Unmarshal(value.Value, &o); err != nil {
			return Options{}, fmt.Errorf("decode runtime options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		return o, nil
	case message.RuntimeOptionsName:
		var r message.RuntimeOptions
		if err := message.Unmarshal(value.Value, &r); err != nil {
			return o, fmt.Errorf("decode runtime options: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		text := r.ConfigBody
		if r.ConfigPath != "" {
			if text, err = os.ReadFile(r.ConfigPath); err != nil {
				return o, fmt.Errorf("read runtime options: %w", err)
			}
		}
		return readOptions(string(text))
	default:
		return o, fmt.Errorf("runtime options of type %q: %w", name, errdefs.ErrInvalidArgument)
	}
}

// table returns where the lines of an options table go, by the names that runc has in containerd's
// configuration. Those that lead to nil are about checkpoints, whose requests say all there is to
// say, or were read by containerd itself.
func table(o *Options) map[string]any {
	return map[string]any{
		"BinaryName": &o.Binary, "Root": &o.Root, "SystemdCgroup": &o.SystemdCgroup, "NoPivotRoot": &o.NoPivotRoot,
		"NoNewKeyring": &o.NoNewKeyring, "IoUid": &o.IOUID, "IoGid": &o.IOGID, "ShimCgroup": &o.ShimCgroup,
		"CriuImagePath": nil, "CriuWorkPath": nil, "CriuPath": nil, "TypeUrl": nil, "ConfigPath": nil,
	}
}

// readOptions reads the lines of an options table, TOML of the form name = value.
func readOptions(text string) (o Options, err error) {
	known := table(&o)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return o, fmt.Errorf("runtime options: line %q is not of the form name = value: %w", line, errdefs.ErrInvalidArgument)
		}
		name, value = strings.Trim(strings.TrimSpace(name), `"'`), strings.TrimSpace(value)
		to, ok := known[name]
		if !ok {
			return o, fmt.Errorf("runtime option %q: there are %s: %w", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "), errdefs.ErrInvalidArgument)
		}
		if err := readValue(value, to); err != nil {
			return o, fmt.Errorf("runtime option %s = %s: %w: %w", name, value, err, errdefs.ErrInvalidArgument)
		}
	}
	return o, nil
}

// readValue reads a TOML value on one line, and the comment that may follow it.
func readValue(text string, to any) (err error) {
	switch to := to.(type) {
	case *string:
		*to, err = readString(text)
	case *bool:
		if *to = bare(text) == "true"; !*to && bare(text) != "false" {
			err = strconv.ErrSyntax
		}
	case *uint32:
		var n uint64
		n, err = strconv.ParseUint(strings.ReplaceAll(bare(text), "_", ""), 10, 32)
		*to = uint32(n)
	}
	return err
}

// bare is a value without quotes, freed of a comment.
func bare(text string) string {
	value, _, _ := strings.Cut(text, "#")
	return strings.TrimSpace(value)
}

func readString(text string) (value string, err error) {
	rest := ""
	if literal, ok := strings.CutPrefix(text, "'"); ok {
		if value, rest, ok = strings.Cut(literal, "'"); !ok {
			return "", strconv.ErrSyntax
		}
	} else {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil || quoted[0] != '"' {
			return "", strconv.ErrSyntax
		}
		if value, err = strconv.Unquote(quoted); err != nil {
			return "", err
		}
		rest = text[len(quoted):]
	}
	if bare(rest) != "" {
		return "", strconv.ErrSyntax
	}
	return value, nil
}
