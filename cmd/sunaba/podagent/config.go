package podagent

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/imagegc"
)

// Config is the table [pods] of the configuration: about pods that run from manifests, without a
// kubelet. What its fields mean is written in default.toml.
type Config struct {
	Manifests     []string          `toml:"manifests"`
	NodeName      string            `toml:"node_name"`
	NodeLabels    map[string]string `toml:"node_labels"`
	MaxPods       int               `toml:"max_pods"`
	IgnoreKinds   []string          `toml:"ignore_kinds"`
	CrashLoopMax  string            `toml:"crash_loop_max"`
	ParallelPulls int               `toml:"parallel_pulls"`
	PullFallback  bool              `toml:"pull_fallback"`
	ClusterDNS    []string          `toml:"cluster_dns"`
	ClusterDomain string            `toml:"cluster_domain"`
	Logs          string            `toml:"logs"`
	LogMaxSize    string            `toml:"log_max_size"`
	LogMaxFiles   int               `toml:"log_max_files"`
	Seccomp       string            `toml:"seccomp_profiles"`
	UnsafeSysctls []string          `toml:"unsafe_sysctls"`
	Listen        string            `toml:"listen"`
	Images        ImagesConfig      `toml:"images"`
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
	_, err := c.Images.policy()
	return err
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
