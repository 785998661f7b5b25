package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v3"

	"github.com/sunaba-project/sunaba/cmd/sunaba/configfile"
	"github.com/sunaba-project/sunaba/cmd/sunaba/supportbundle"
	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
)

// supportNode says what a support bundle is about. A wrong configuration is no reason to have none.
func supportNode(cmd *cli.Command) (supportbundle.Node, error) {
	p := places{root: cmd.String("root"), state: cmd.String("state"), socket: cmd.String("socket"), config: cmd.String("config")}
	if err := errors.Join(checkRootAlone(cmd), p.resolve()); err != nil {
		return supportbundle.Node{}, err
	}
	n := supportbundle.Node{Root: p.root, State: p.state, Socket: p.socket, ConfigFile: p.config, ConfigKeys: map[string]bool{}}
	if p.config == "" {
		n.ConfigFile = standardConfig
	}
	c, fault := readConfig(p.config)
	if fault != nil { // what it says is of use as far as it can be decoded
		data, err := os.ReadFile(n.ConfigFile)
		if errors.Is(err, fs.ErrNotExist) {
			return n, fault
		}
		c = defaultConfig()
		if errors.Join(err, toml.Unmarshal(data, &c)) != nil {
			at, _, _ := strings.Cut(fault.Error(), ": ") // what follows may quote it
			n.Unknown = at + ": the configuration cannot be decoded, which names files that have secrets"
		}
	}
	for _, key := range configfile.Keys(c) {
		n.ConfigKeys[key[strings.LastIndex(key, ".")+1:]] = true
	}
	delete(n.ConfigKeys, "node_labels")
	n.Credentials, n.HostsDir, n.Manifests, n.PodLogs = c.Images.CredentialsFile, c.Images.HostsDir, c.Pods.Manifests, c.Pods.Logs
	n.Shim = func() (string, error) { return findShim(c.Shim) }
	if handlers, err := c.handlers(findOCIRuntime()); err == nil {
		n.Runtimes = programs(handlers)
	}
	n.Check = func(ctx context.Context, w io.Writer) error {
		if fault != nil {
			fmt.Fprintln(w, "configuration:", fault)
		}
		var found usage.Exit
		err := (&checked{config: c, places: p, out: w, logger: slog.New(slog.DiscardHandler)}).check(ctx)
		if errors.As(err, &found) {
			return nil
		}
		return err
	}
	return n, nil
}
