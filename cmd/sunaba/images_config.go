package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
)

type imagesConfig struct {
	InsecureRegistries []string            `toml:"insecure_registries"`
	HostsDir           string              `toml:"hosts_dir"`
	CredentialsFile    string              `toml:"credentials_file"`
	PullVerification   string              `toml:"pull_verification"`
	ParallelLayers     int                 `toml:"parallel_layers"`
	ParallelFetches    int                 `toml:"parallel_fetches"`
	RangeThresholdMiB  int64               `toml:"range_threshold_mib"`
	RangeSizeMiB       int64               `toml:"range_size_mib"`
	RangeMemoryMiB     int64               `toml:"range_memory_mib"`
	ConnectTimeout     string              `toml:"connect_timeout"`
	StallTimeout       string              `toml:"stall_timeout"`
	Retries            int                 `toml:"retries"`
	MaxRetryAfter      string              `toml:"max_retry_after"`
	KeepLayers         bool                `toml:"keep_layers"`
	BudgetMiB          int64               `toml:"budget_mib"`
	MaxLayerMiB        int64               `toml:"max_layer_mib"`
	RestoreCheckpoints bool                `toml:"restore_checkpoints"`
	PreloadDir         string              `toml:"preload_dir"`
	Pinned             []string            `toml:"pinned"`
	Mirrors            map[string][]string `toml:"mirrors"`
}

func defaultImages() imagesConfig {
	return imagesConfig{
		InsecureRegistries: []string{},
		HostsDir:           "/etc/containerd/certs.d",
		CredentialsFile:    "/var/lib/kubelet/config.json",
		PullVerification:   string(images.VerifyNever),
		ParallelLayers:     images.DefaultParallelLayers,
		ParallelFetches:    registry.DefaultMaxFetches,
		RangeThresholdMiB:  registry.DefaultRangeThreshold >> 20,
		RangeSizeMiB:       registry.DefaultRangeSize >> 20,
		RangeMemoryMiB:     registry.DefaultRangeMemory >> 20,
		ConnectTimeout:     "30s",
		StallTimeout:       "1m",
		Retries:            registry.DefaultRetries,
		MaxRetryAfter:      "2m",
		MaxLayerMiB:        64 << 10,
		Pinned:             []string{},
		Mirrors:            map[string][]string{},
	}
}

// preloadDir is where images are that are imported at every start.
func (c imagesConfig) preloadDir(p places) string {
	if c.PreloadDir == "" {
		return filepath.Join(p.root, "preload")
	}
	return c.PreloadDir
}

// registry makes the options of the registry client, which takes 0 and less for other things than this file does.
func (c imagesConfig) registry() (registry.Options, error) {
	o := registry.Options{
		Insecure: c.InsecureRegistries, HostsDir: c.HostsDir, CredentialsFile: c.CredentialsFile,
		MaxFetches: c.ParallelFetches, Retries: c.Retries,
		RangeThreshold: c.RangeThresholdMiB << 20, RangeSize: c.RangeSizeMiB << 20, RangeMemory: c.RangeMemoryMiB << 20,
	}
	for _, n := range []struct {
		name         string
		value, least int64
	}{
		{"parallel_layers", int64(c.ParallelLayers), 1}, {"parallel_fetches", int64(c.ParallelFetches), 1},
		{"range_threshold_mib", c.RangeThresholdMiB, 0}, {"range_size_mib", c.RangeSizeMiB, 1},
		{"range_memory_mib", c.RangeMemoryMiB, c.RangeSizeMiB}, {"retries", int64(c.Retries), 0},
		{"budget_mib", c.BudgetMiB, 0}, {"max_layer_mib", c.MaxLayerMiB, 1},
	} {
		if n.value < n.least {
			return o, fmt.Errorf("images.%s is %d, and %d is the least", n.name, n.value, n.least)
		}
	}
	if o.RangeThreshold == 0 {
		o.RangeThreshold = -1
	}
	if o.Retries == 0 {
		o.Retries = -1
	}
	for _, d := range []struct {
		name, value string
		into        *time.Duration
	}{
		{"connect_timeout", c.ConnectTimeout, &o.ConnectTimeout}, {"stall_timeout", c.StallTimeout, &o.StallTimeout},
		{"max_retry_after", c.MaxRetryAfter, &o.MaxRetryAfter},
	} {
		var err error
		if *d.into, err = time.ParseDuration(d.value); err != nil || *d.into <= 0 {
			return o, fmt.Errorf("images.%s is %q, which is no duration such as \"30s\"", d.name, d.value)
		}
	}
	var err error
	o.Mirrors, err = c.mirrors()
	return o, err
}

// mirrors reads the endpoints that are asked before each registry.
func (c imagesConfig) mirrors() (map[string][]registry.Mirror, error) {
	mirrors := map[string][]registry.Mirror{}
	for host, endpoints := range c.Mirrors {
		if err := registry.CheckMirrored(host); err != nil {
			return nil, fmt.Errorf("images.mirrors: %w", err)
		}
		for _, endpoint := range endpoints {
			m, err := registry.ParseMirror(endpoint)
			if err != nil {
				return nil, fmt.Errorf("images.mirrors.%q: %w", host, err)
			}
			mirrors[host] = append(mirrors[host], m)
		}
	}
	return mirrors, nil
}
