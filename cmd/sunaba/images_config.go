package main

import (
	"fmt"
	"time"

	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

type imagesConfig struct {
	InsecureRegistries []string            `toml:"insecure_registries"`
	HostsDir           string              `toml:"hosts_dir"`
	CredentialsFile    string              `toml:"credentials_file"`
	PullVerification   string              `toml:"pull_verification"`
	StallTimeout       string              `toml:"stall_timeout"`
	KeepLayers         bool                `toml:"keep_layers"`
	BudgetMiB          int64               `toml:"budget_mib"`
	MaxLayerMiB        int64               `toml:"max_layer_mib"`
	RestoreCheckpoints bool                `toml:"restore_checkpoints"`
	Pinned             []string            `toml:"pinned"`
	Mirrors            map[string][]string `toml:"mirrors"`
}

func defaultImages() imagesConfig {
	return imagesConfig{
		InsecureRegistries: []string{},
		HostsDir:           "/etc/containerd/certs.d",
		CredentialsFile:    "/var/lib/kubelet/config.json",
		PullVerification:   string(images.VerifyNever),
		StallTimeout:       "1m",
		MaxLayerMiB:        64 << 10,
		Pinned:             []string{},
		Mirrors:            map[string][]string{},
	}
}

// registry makes the options of the registry client.
func (c imagesConfig) registry() (registry.Options, error) {
	o := registry.Options{Insecure: c.InsecureRegistries, HostsDir: c.HostsDir, CredentialsFile: c.CredentialsFile}
	for _, n := range []struct {
		name         string
		value, least int64
	}{
		{"budget_mib", c.BudgetMiB, 0}, {"max_layer_mib", c.MaxLayerMiB, 1},
	} {
		if n.value < n.least {
			return o, fmt.Errorf("images.%s is %d, and %d is the least", n.name, n.value, n.least)
		}
	}
	var err error
	if o.StallTimeout, err = time.ParseDuration(c.StallTimeout); err != nil || o.StallTimeout <= 0 {
		return o, fmt.Errorf("images.stall_timeout is %q, not a duration such as \"30s\"", c.StallTimeout)
	}
	o.Mirrors, err = c.mirrors()
	return o, err
}

// mirrors reads the endpoints that are asked before each registry.
func (c imagesConfig) mirrors() (map[string][]hosts.Mirror, error) {
	mirrors := map[string][]hosts.Mirror{}
	for host, endpoints := range c.Mirrors {
		if err := hosts.CheckMirrored(host); err != nil {
			return nil, fmt.Errorf("images.mirrors: %w", err)
		}
		for _, endpoint := range endpoints {
			m, err := hosts.ParseMirror(endpoint)
			if err != nil {
				return nil, fmt.Errorf("images.mirrors.%q: %w", host, err)
			}
			mirrors[host] = append(mirrors[host], m)
		}
	}
	return mirrors, nil
}
