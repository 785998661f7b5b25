package podagent

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/shutdown"
	"github.com/sunaba-project/sunaba/pods/imagegc"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// Config is the table [pods] of the configuration: about pods that run from manifests, without a
// kubelet. What its fields mean is written in default.toml.
type Config struct {
	Manifests      []string          `toml:"manifests"`
	NodeName       string            `toml:"node_name"`
	NodeLabels     map[string]string `toml:"node_labels"`
	MaxPods        int               `toml:"max_pods"`
	IgnoreKinds    []string          `toml:"ignore_kinds"`
	CrashLoopMax   string            `toml:"crash_loop_max"`
	ParallelPulls  int               `toml:"parallel_pulls"`
	PullFallback   bool              `toml:"pull_fallback"`
	ClusterDNS     []string          `toml:"cluster_dns"`
	ClusterDomain  string            `toml:"cluster_domain"`
	Logs           string            `toml:"logs"`
	LogMaxSize     string            `toml:"log_max_size"`
	LogMaxFiles    int               `toml:"log_max_files"`
	Seccomp        string            `toml:"seccomp_profiles"`
	SeccompDefault bool              `toml:"seccomp_default"`
	UnsafeSysctls  []string          `toml:"unsafe_sysctls"`
	Listen         string            `toml:"listen"`

	ReservedCPU              string `toml:"reserved_cpu"`
	ReservedMemory           string `toml:"reserved_memory"`
	ReservedEphemeralStorage string `toml:"reserved_ephemeral_storage"`

	ShutdownGrace         string `toml:"shutdown_grace"`
	ShutdownGraceCritical string `toml:"shutdown_grace_critical"`
	LogindDropIn          bool   `toml:"logind_drop_in"`

	Eviction Eviction     `toml:"eviction"`
	Images   ImagesConfig `toml:"images"`
}

// Eviction is the table [pods.eviction]: when pods end because the node has too little of
// something.
type Eviction struct {
	MemoryAvailable   string `toml:"memory_available"`
	NodeFSAvailable   string `toml:"nodefs_available"`
	NodeFSInodesFree  string `toml:"nodefs_inodes_free"`
	ImageFSAvailable  string `toml:"imagefs_available"`
	ImageFSInodesFree string `toml:"imagefs_inodes_free"`
	PIDAvailable      string `toml:"pid_available"`
	Transition        string `toml:"transition"`
}

// ImagesConfig is the table [pods.images]: when images that nothing uses are removed.
type ImagesConfig struct {
	HighPercent int    `toml:"high_percent"`
	LowPercent  int    `toml:"low_percent"`
	MinAge      string `toml:"min_age"`
	MaxAge      string `toml:"max_age"`
}

// Default is what holds without a configuration file.
func Default() Config {
	return Config{
		Manifests: []string{}, NodeLabels: map[string]string{}, MaxPods: 110, IgnoreKinds: []string{}, CrashLoopMax: "5m", ParallelPulls: 1,
		ClusterDNS: []string{}, UnsafeSysctls: []string{}, Logs: "/var/log/pods", LogMaxSize: "10Mi", LogMaxFiles: 5,
		Eviction: Eviction{
			NodeFSAvailable: "10%", NodeFSInodesFree: "5%", ImageFSAvailable: "15%", ImageFSInodesFree: "5%", PIDAvailable: "0%", Transition: "5m",
		},
		ReservedCPU: "0", ReservedMemory: "0", ReservedEphemeralStorage: "0",
		ShutdownGrace: "30s", ShutdownGraceCritical: "10s", LogindDropIn: true,
		Images: ImagesConfig{HighPercent: 85, LowPercent: 80, MinAge: "2m", MaxAge: "0"},
	}
}

// maxMaxPods bounds max_pods: more than this many pods have no addresses in the embedded network.
const maxMaxPods = 4000

// Check refuses values that the parts would refuse later or not understand. The error names the
// key.
func (c Config) Check() error {
	for _, dir := range c.Manifests {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("pods.manifests: %q is not an absolute path", dir)
		}
	}
	for name, path := range map[string]string{"logs": c.Logs, "seccomp_profiles": c.Seccomp} {
		if path != "" && !filepath.IsAbs(path) || name == "logs" && path == "" {
			return fmt.Errorf("pods.%s: %q is not an absolute path", name, path)
		}
	}
	if c.NodeName != "" {
		if errs := validation.IsDNS1123Subdomain(c.NodeName); len(errs) > 0 {
			return fmt.Errorf("pods.node_name %q: %s", c.NodeName, errs[0])
		}
	}
	if errs := metavalidation.ValidateLabels(c.NodeLabels, field.NewPath("pods", "node_labels")); len(errs) > 0 {
		return errs[0]
	}
	if c.MaxPods < 1 || c.MaxPods > maxMaxPods {
		return fmt.Errorf("pods.max_pods is %d, not between 1 and %d", c.MaxPods, maxMaxPods)
	}
	if c.ParallelPulls < 1 || c.ParallelPulls > 100 {
		return fmt.Errorf("pods.parallel_pulls is %d, not between 1 and 100", c.ParallelPulls)
	}
	for _, server := range c.ClusterDNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return fmt.Errorf("pods.cluster_dns: %q is not an IP address", server)
		}
	}
	if c.ClusterDomain != "" {
		if errs := validation.IsDNS1123Subdomain(c.ClusterDomain); len(errs) > 0 {
			return fmt.Errorf("pods.cluster_domain %q: %s", c.ClusterDomain, errs[0])
		}
	}
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			return fmt.Errorf("pods.listen %q is not \"HOST:PORT\"", c.Listen)
		}
	}
	if _, err := c.crashLoopMax(); err != nil {
		return err
	}
	if _, err := c.logLimits(); err != nil {
		return err
	}
	if _, err := c.reserved(); err != nil {
		return err
	}
	if _, err := c.Graces(); err != nil {
		return err
	}
	if _, err := c.Eviction.thresholds(0); err != nil {
		return err
	}
	if _, err := c.Eviction.transition(); err != nil {
		return err
	}
	_, err := c.Images.policy()
	return err
}

// thresholds are those of a node with so many bytes of memory.
func (e Eviction) thresholds(memory int64) (pressure.Thresholds, error) {
	list := pressure.Thresholds{}
	for _, one := range []struct {
		name, text string
		signal     pressure.Signal
	}{
		{"memory_available", e.MemoryAvailable, pressure.Memory},
		{"nodefs_available", e.NodeFSAvailable, pressure.NodeFS},
		{"nodefs_inodes_free", e.NodeFSInodesFree, pressure.NodeInodes},
		{"imagefs_available", e.ImageFSAvailable, pressure.ImageFS},
		{"imagefs_inodes_free", e.ImageFSInodesFree, pressure.ImageInodes},
		{"pid_available", e.PIDAvailable, pressure.PIDs},
	} {
		t, err := pressure.ParseThreshold(one.text)
		if err != nil {
			return nil, fmt.Errorf("pods.eviction.%s %w", one.name, err)
		}
		list[one.signal] = t
	}
	list[pressure.LogFS], list[pressure.LogInodes] = list[pressure.NodeFS], list[pressure.NodeInodes] // EX3
	if e.MemoryAvailable == "" {
		list[pressure.Memory] = pressure.DefaultMemory(memory)
	}
	return list, nil
}

// Graces are the times of a shutdown of the node.
func (c Config) Graces() (g shutdown.Graces, err error) {
	const most = time.Hour
	if g.Total, err = time.ParseDuration(c.ShutdownGrace); err != nil || g.Total < 0 || g.Total > most || g.Total%time.Second != 0 {
		return g, fmt.Errorf("pods.shutdown_grace %q is not a duration of whole seconds from \"0s\" to \"1h\"", c.ShutdownGrace)
	}
	if g.Critical, err = time.ParseDuration(c.ShutdownGraceCritical); err != nil || g.Critical < 0 || g.Critical%time.Second != 0 {
		return g, fmt.Errorf("pods.shutdown_grace_critical %q is not a duration of whole seconds", c.ShutdownGraceCritical)
	}
	if g.Total > 0 && g.Critical > g.Total {
		return g, fmt.Errorf("pods.shutdown_grace_critical %q is longer than shutdown_grace, of which it is a part", c.ShutdownGraceCritical)
	}
	return g, nil
}

// reserved is what of the node pods may not request.
func (c Config) reserved() (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for _, r := range []struct {
		name     corev1.ResourceName
		key      string
		value    string
		examples string
	}{
		{corev1.ResourceCPU, "reserved_cpu", c.ReservedCPU, `"500m"`},
		{corev1.ResourceMemory, "reserved_memory", c.ReservedMemory, `"256Mi"`},
		{corev1.ResourceEphemeralStorage, "reserved_ephemeral_storage", c.ReservedEphemeralStorage, `"1Gi"`},
	} {
		amount, err := resource.ParseQuantity(r.value)
		if err != nil || amount.Sign() < 0 {
			return nil, fmt.Errorf("pods.%s %q is not an amount such as %s, or \"0\"", r.key, r.value, r.examples)
		}
		if !amount.IsZero() {
			list[r.name] = amount
		}
	}
	return list, nil
}

// transition has no limit in a kubelet. More than a day would be a mistake.
func (e Eviction) transition() (time.Duration, error) {
	d, err := time.ParseDuration(e.Transition)
	if err != nil || d < 0 || d > 24*time.Hour {
		return 0, fmt.Errorf("pods.eviction.transition %q is not a duration from \"0s\" to \"24h\"", e.Transition)
	}
	return d, nil
}

// policy has the limits of a kubelet's imageGCHighThresholdPercent and its siblings.
func (c ImagesConfig) policy() (imagegc.Policy, error) {
	p := imagegc.Policy{High: c.HighPercent, Low: c.LowPercent}
	if p.High < 1 || p.High > 100 {
		return p, fmt.Errorf("pods.images.high_percent is %d, not between 1 and 100", p.High)
	}
	if p.Low < 0 || p.Low >= p.High {
		return p, fmt.Errorf("pods.images.low_percent is %d, not between 0 and %d, which is less than high_percent", p.Low, p.High-1)
	}
	for _, age := range []struct {
		key, text string
		to        *time.Duration
	}{{"min_age", c.MinAge, &p.MinAge}, {"max_age", c.MaxAge, &p.MaxAge}} {
		d, err := time.ParseDuration(age.text)
		if err != nil || d < 0 {
			return p, fmt.Errorf("pods.images.%s %q is not a duration such as \"2m\" or \"720h\"", age.key, age.text)
		}
		*age.to = d
	}
	if p.MaxAge != 0 && p.MaxAge <= p.MinAge {
		return p, fmt.Errorf("pods.images.max_age %q is not longer than min_age %q; \"0\" is no limit", c.MaxAge, c.MinAge)
	}
	return p, nil
}

// crashLoopMax has the limits of a kubelet's crashLoopBackOff.maxContainerRestartPeriod.
func (c Config) crashLoopMax() (time.Duration, error) {
	d, err := time.ParseDuration(c.CrashLoopMax)
	if err != nil || d < time.Second || d > 5*time.Minute {
		return 0, fmt.Errorf("pods.crash_loop_max %q is not a duration from \"1s\" to \"5m\"", c.CrashLoopMax)
	}
	return d, nil
}

func (c Config) logLimits() (logs.Limits, error) {
	const least, most = 64 << 10, 1 << 40
	size, err := resource.ParseQuantity(c.LogMaxSize)
	if err != nil || size.Value() < least || size.Value() > most {
		return logs.Limits{}, fmt.Errorf("pods.log_max_size %q is not an amount from \"64Ki\" to \"1Ti\"", c.LogMaxSize)
	}
	if c.LogMaxFiles < 2 || c.LogMaxFiles > 1000 {
		return logs.Limits{}, fmt.Errorf("pods.log_max_files is %d, not between 2 and 1000", c.LogMaxFiles)
	}
	return logs.Limits{Size: size.Value(), Files: c.LogMaxFiles}, nil
}
