package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/cmd/sunaba/configfile"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/pods/page"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// defaultTOML is the documented default configuration; a test holds it equal to defaultConfig.
//
//go:embed default.toml
var defaultTOML string

// config is the configuration file. What its fields mean is written once, in default.toml.
type config struct {
	CgroupDriver string                   `toml:"cgroup_driver"`
	Shim         string                   `toml:"shim"`
	Log          logConfig                `toml:"log"`
	Logs         logsConfig               `toml:"logs"`
	Images       imagesConfig             `toml:"images"`
	Network      networkConfig            `toml:"network"`
	Stream       streamConfig             `toml:"stream"`
	Security     securityConfig           `toml:"security"`
	Devices      devicesConfig            `toml:"devices"`
	Wasm         wasmConfig               `toml:"wasm"`
	Overhead     overheadConfig           `toml:"overhead"`
	Metrics      metricsConfig            `toml:"metrics"`
	Page         page.Config              `toml:"page"`
	Pods         podagent.Config          `toml:"pods"`
	Handlers     map[string]handlerConfig `toml:"handlers"`
}

type logConfig struct {
	Level  string `toml:"level"`
	Format string `toml:"format"`
}

type logsConfig struct {
	RateKiB    int `toml:"rate_kib"`
	MaxSizeMiB int `toml:"max_size_mib"`
}

type networkConfig struct {
	ConfDir  string   `toml:"conf_dir"`
	BinDirs  []string `toml:"bin_dirs"`
	Bridge   string   `toml:"bridge"`
	SubnetV4 string   `toml:"subnet_v4"`
	SubnetV6 string   `toml:"subnet_v6"`
	Embedded string   `toml:"embedded"`

	BlockLinkLocal bool `toml:"block_link_local"`
}

type streamConfig struct {
	Address     string `toml:"address"`
	Port        int    `toml:"port"`
	TLSCertFile string `toml:"tls_cert_file"`
	TLSKeyFile  string `toml:"tls_key_file"`
}

type securityConfig struct {
	AppArmor bool `toml:"apparmor"`
	SELinux  bool `toml:"selinux"`
}

type devicesConfig struct {
	CDISpecDirs []string `toml:"cdi_spec_dirs"`
}

type overheadConfig struct {
	Every   string   `toml:"every"`
	Classes []string `toml:"classes"`
}

type metricsConfig struct {
	Address string `toml:"address"`
}

type handlerConfig struct {
	Type      string   `toml:"type"`
	Binary    string   `toml:"binary"`
	ShimScope string   `toml:"shim_scope"`
	Platforms []string `toml:"platforms"`
	Default   bool     `toml:"default"`

	PodAnnotations       []string `toml:"pod_annotations"`
	ContainerAnnotations []string `toml:"container_annotations"`

	// Logs takes the place of the whole of logs for the handler's pods; nil = those hold.
	Logs *logsConfig `toml:"logs"`
}

// defaultConfig is what holds without a file.
func defaultConfig() config {
	return config{
		CgroupDriver: "auto",
		Log:          logConfig{Level: "info", Format: "text"},
		Images:       defaultImages(),
		Network:      networkConfig{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, Embedded: string(network.UseAuto), BlockLinkLocal: true},
		Stream:       streamConfig{Address: "127.0.0.1"},
		Security:     securityConfig{AppArmor: true},
		Devices:      devicesConfig{CDISpecDirs: []string{"/etc/cdi", "/var/run/cdi"}},
		Overhead:     overheadConfig{Every: "15s", Classes: []string{}},
		Pods:         podagent.Default(),
		Handlers:     defaultHandlers(),
	}
}

func defaultHandlers() map[string]handlerConfig {
	const node = string(runtimeclass.ScopeNode)
	return map[string]handlerConfig{
		"runc": {Type: string(runtimeclass.OCI), ShimScope: node, Platforms: []string{}, Default: true, PodAnnotations: []string{}, ContainerAnnotations: []string{}},
		"wasm": {Type: string(runtimeclass.WASM), ShimScope: node, Platforms: []string{}, PodAnnotations: []string{}, ContainerAnnotations: []string{}},
	}
}

// standardConfig is the configuration file of those that name none.
const standardConfig = "/etc/sunaba/config.toml"

// readConfig reads and checks a configuration file; "" is the standard one if that exists, and the
// default configuration if it does not.
func readConfig(file string) (config, error) { return readConfigOr(file, standardConfig) }

func readConfigOr(file, standard string) (config, error) {
	c := defaultConfig()
	named := file != ""
	if !named {
		file = standard
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	return parseConfig(file, data)
}

func parseConfig(name string, data []byte) (config, error) {
	file := configFile(name, data)
	c := defaultConfig()
	c.Handlers = nil
	if err := file.Decode(&c); err != nil {
		return c, err
	}
	if len(c.Handlers) == 0 {
		c.Handlers = defaultHandlers()
	}
	return c, file.Locate(c.check())
}

func configFile(name string, data []byte) configfile.File {
	return configfile.File{Name: name, Data: data, Removed: removedKeys}
}

// check refuses values that the parts would refuse later or not understand, all at once. Each text
// starts with a key.
func (c config) check() error {
	var errs []error
	for _, f := range []struct {
		name, value string
		known       []string
	}{
		{"cgroup_driver", c.CgroupDriver, []string{"auto", "cgroupfs", "systemd"}},
		{"log.level", c.Log.Level, logLevels()},
		{"log.format", c.Log.Format, logFormats()},
		{"network.embedded", c.Network.Embedded, network.Uses()},
		{"images.pull_verification", c.Images.PullVerification, images.Verifications()},
	} {
		if !slices.Contains(f.known, f.value) {
			errs = append(errs, fmt.Errorf("%s is %q, not one of %s", f.name, f.value, strings.Join(f.known, ", ")))
		}
	}
	if len(c.Network.Bridge) > 15 {
		errs = append(errs, fmt.Errorf("network.bridge %q is longer than 15 characters", c.Network.Bridge))
	} else if err := network.Check(networkOptions(c, defaultPlaces(), nil)); err != nil {
		errs = append(errs, fmt.Errorf("network: %w", err))
	}
	for _, dir := range c.Devices.CDISpecDirs {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("devices.cdi_spec_dirs: %q is not an absolute path", dir))
		}
	}
	_, imagesErr := c.Images.registry()
	_, overheadErr := c.Overhead.interval()
	_, handlersErr := c.handlers("")
	return errors.Join(append(errs, imagesErr, c.checkLogs(), c.Stream.check(), overheadErr, c.Metrics.check(), c.Page.Check(), c.Wasm.check(), c.Pods.Check(), handlersErr)...)
}

func (c config) checkLogs() error {
	if err := c.Logs.check("logs"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Handlers)) {
		if logs := c.Handlers[name].Logs; logs != nil {
			if err := logs.check("handlers." + name + ".logs"); err != nil {
				return err
			}
		}
	}
	return nil
}

// logLimits are those of a container's log, by its pod's handler; "" stands for the handlers
// without any of their own.
func (c config) logLimits() map[string]stdio.Limits {
	limits := map[string]stdio.Limits{"": c.Logs.limits()}
	for name, h := range c.Handlers {
		if h.Logs != nil {
			limits[name] = h.Logs.limits()
		}
	}
	return limits
}

func (c logsConfig) check(table string) error {
	const most = 1 << 20
	for _, f := range []struct {
		name  string
		value int
	}{{"rate_kib", c.RateKiB}, {"max_size_mib", c.MaxSizeMiB}} {
		if f.value < 0 || f.value > most {
			return fmt.Errorf("%s.%s is %d, not between 0 and %d", table, f.name, f.value, most)
		}
	}
	return nil
}

func (c logsConfig) limits() stdio.Limits {
	return stdio.Limits{Rate: int64(c.RateKiB) << 10, Size: int64(c.MaxSizeMiB) << 20}
}

func (c streamConfig) check() error {
	if _, err := netip.ParseAddr(c.Address); err != nil {
		return fmt.Errorf("stream.address %q is not an IP address", c.Address)
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("stream.port %d is not between 0 and 65535", c.Port)
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		return errors.New("stream.tls_cert_file and stream.tls_key_file need one another")
	}
	return nil
}

// interval is the time between two samples of a pod.
func (c overheadConfig) interval() (time.Duration, error) {
	every, err := time.ParseDuration(c.Every)
	if err != nil || every < time.Second {
		return 0, fmt.Errorf("overhead.every %q is not a duration of at least \"1s\"", c.Every)
	}
	return every, nil
}

func (c metricsConfig) check() error {
	if c.Address == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return fmt.Errorf("metrics.address %q is not \"HOST:PORT\"", c.Address)
	}
	return nil
}

// handlers makes the handler table. oci is the OCI runtime of handlers that name none.
func (c config) handlers(oci string) (*runtimeclass.Table, error) {
	var list []runtimeclass.Handler
	for name, h := range c.Handlers {
		platforms, err := runtimeclass.ParsePlatforms(h.Platforms)
		if err != nil {
			return nil, fmt.Errorf("handlers.%s: %w", name, err)
		}
		binary := cmp.Or(h.Binary, oci)
		list = append(list, runtimeclass.Handler{
			Name: name, Type: runtimeclass.Type(h.Type), Binary: binary, Platforms: platforms, Default: h.Default,
			ShimScope:      runtimeclass.Scope(h.ShimScope),
			PodAnnotations: h.PodAnnotations, ContainerAnnotations: h.ContainerAnnotations,
		})
	}
	return runtimeclass.NewTable(list)
}

// findOCIRuntime looks for runc, then crun. Without either the name runc stands, and starting a
// Linux container says what is missing; WebAssembly guests need neither.
func findOCIRuntime() string {
	for _, name := range []string{"runc", "crun"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "runc"
}

// findShim returns the shim's path: the configured one, the one beside this program, or the one in
// PATH.
func findShim(configured string) (string, error) {
	const name = "containerd-shim-sunaba-v1"
	if configured != "" {
		path, err := exec.LookPath(configured)
		if err != nil {
			return "", fmt.Errorf("find shim: %w", err)
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find shim: %w", err)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find shim %s beside this program or in PATH (or set \"shim\" in the configuration): %w", name, errdefs.ErrNotFound)
	}
	return path, nil
}
