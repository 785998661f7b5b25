package podagent

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/pods/imagegc"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

func TestConfigCheck(t *testing.T) {
	if err := Default().Check(); err != nil {
		t.Fatalf("the default: %v", err)
	}
	for want, change := range map[string]func(*Config){
		`pods.manifests: "a/b" is not an absolute path`:                  func(c *Config) { c.Manifests = []string{"/x", "a/b"} },
		`pods.logs: "" is not an absolute path`:                          func(c *Config) { c.Logs = "" },
		`pods.seccomp_profiles: "x" is not an absolute path`:             func(c *Config) { c.Seccomp = "x" },
		`pods.node_name "Till 4"`:                                        func(c *Config) { c.NodeName = "Till 4" },
		`pods.node_labels`:                                               func(c *Config) { c.NodeLabels = map[string]string{"a": "b c"} },
		`pods.max_pods is 0, not between 1 and 4000`:                     func(c *Config) { c.MaxPods = 0 },
		`pods.parallel_pulls is 101, not between 1 and 100`:              func(c *Config) { c.ParallelPulls = 101 },
		`pods.cluster_dns: "dns" is not an IP address`:                   func(c *Config) { c.ClusterDNS = []string{"10.0.0.1", "dns"} },
		`pods.cluster_domain "a_b"`:                                      func(c *Config) { c.ClusterDomain = "a_b" },
		`pods.listen "8080" is not "HOST:PORT"`:                          func(c *Config) { c.Listen = "8080" },
		`pods.crash_loop_max "10m" is not a duration from "1s" to "5m"`:  func(c *Config) { c.CrashLoopMax = "10m" },
		`pods.crash_loop_max "0.5s" is not`:                              func(c *Config) { c.CrashLoopMax = "0.5s" },
		`pods.log_max_size "1k" is not an amount from "64Ki" to "1Ti"`:   func(c *Config) { c.LogMaxSize = "1k" },
		`pods.eviction.memory_available "lots" is not an amount above 0`: func(c *Config) { c.Eviction.MemoryAvailable = "lots" },
		`pods.eviction.nodefs_available "101%" is not a share`:           func(c *Config) { c.Eviction.NodeFSAvailable = "101%" },
		`pods.eviction.nodefs_inodes_free "-1"`:                          func(c *Config) { c.Eviction.NodeFSInodesFree = "-1" },
		`pods.eviction.imagefs_available "NaN%"`:                         func(c *Config) { c.Eviction.ImageFSAvailable = "NaN%" },
		`pods.eviction.imagefs_inodes_free "0"`:                          func(c *Config) { c.Eviction.ImageFSInodesFree = "0" },
		`pods.eviction.pid_available "%"`:                                func(c *Config) { c.Eviction.PIDAvailable = "%" },
		`pods.eviction.transition "25h" is not a duration`:               func(c *Config) { c.Eviction.Transition = "25h" },
		`pods.log_max_files is 1, not between 2 and 1000`:                func(c *Config) { c.LogMaxFiles = 1 },
		`pods.shutdown_grace "30" is not a duration`:                     func(c *Config) { c.ShutdownGrace = "30" },
		`pods.shutdown_grace "2h" is not a duration`:                     func(c *Config) { c.ShutdownGrace = "2h" },
		`pods.shutdown_grace_critical "1.5s" is not a duration`:          func(c *Config) { c.ShutdownGraceCritical = "1.5s" },
		`pods.shutdown_grace_critical "31s" is longer`:                   func(c *Config) { c.ShutdownGraceCritical = "31s" },
		`pods.reserved_cpu "-1" is not an amount such as "500m"`:         func(c *Config) { c.ReservedCPU = "-1" },
		`pods.reserved_memory "" is not an amount such as "256Mi"`:       func(c *Config) { c.ReservedMemory = "" },
		`pods.reserved_ephemeral_storage "1 GB" is not an amount`:        func(c *Config) { c.ReservedEphemeralStorage = "1 GB" },
		`pods.images.high_percent is 101, not between 1 and 100`:         func(c *Config) { c.Images.HighPercent = 101 },
		`pods.images.low_percent is 85, not between 0 and 84`:            func(c *Config) { c.Images.LowPercent = 85 },
		`pods.images.min_age "-1s" is not a duration`:                    func(c *Config) { c.Images.MinAge = "-1s" },
		`pods.images.max_age "30d" is not a duration`:                    func(c *Config) { c.Images.MaxAge = "30d" },
		`pods.images.max_age "1m" is not longer than min_age`:            func(c *Config) { c.Images.MaxAge = "1m" },
	} {
		c := Default()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestConfigValues(t *testing.T) {
	c := Default()
	if d, err := c.crashLoopMax(); d != 5*time.Minute || err != nil { // BO7
		t.Errorf("crash_loop_max: %v, %v", d, err)
	}
	if l, err := c.logLimits(); l.Size != 10<<20 || l.Files != 5 || err != nil { // LG1
		t.Errorf("log limits: %+v, %v", l, err)
	}
	if g, err := c.Graces(); g.Total != 30*time.Second || g.Critical != 10*time.Second || err != nil { // SD1
		t.Errorf("graces: %+v, %v", g, err)
	}
	if r, err := c.reserved(); len(r) != 0 || err != nil {
		t.Errorf("reserved: %v, %v", r, err)
	}
	c.ReservedCPU, c.ShutdownGrace = "500m", "0"
	if r, err := c.reserved(); r.Cpu().MilliValue() != 500 || len(r) != 1 || err != nil {
		t.Errorf("reserved: %v, %v", r, err)
	}
	if err := c.Check(); err != nil { // 0 turns it off, whatever critical pods would have
		t.Error(err)
	}
	if p, err := c.Images.policy(); p != (imagegc.Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}) || err != nil { // GC1
		t.Errorf("removal of images: %+v, %v", p, err)
	}
}

// SE6: the key of the default profile reaches the node that containers are translated for.
func TestConfigSeccompDefault(t *testing.T) {
	for _, on := range []bool{false, true} {
		c := Default()
		c.SeccompDefault = c.SeccompDefault || on
		f, err := Facts(c, t.TempDir(), spec.Host{})
		if err != nil || f.Node.SeccompDefault != on {
			t.Errorf("%v: %v, %v", on, f.Node.SeccompDefault, err)
		}
	}
}

// EX3: logs with a file system of their own have the thresholds of nodefs.
func TestConfigLogThresholds(t *testing.T) {
	list, err := Default().Eviction.thresholds(0)
	full := pressure.Readings{pressure.LogFS: {Available: 9, Capacity: 100}, pressure.LogInodes: {Available: 4, Capacity: 100}}
	if met := list.Met(full); err != nil || !slices.Equal(met, []pressure.Signal{pressure.LogFS, pressure.LogInodes}) {
		t.Errorf("%v, %v", met, err)
	}
}

// RE18: there are no static managers of CPUs, memory and topology, and no key for one.
func TestConfigHasNoManagers(t *testing.T) {
	var keys func(reflect.Type)
	seen := 0
	keys = func(table reflect.Type) {
		for i := range table.NumField() {
			name := table.Field(i).Tag.Get("toml")
			for _, word := range []string{"manager", "topology", "numa", "cpuset"} {
				if strings.Contains(name, word) {
					t.Errorf("key %q", name)
				}
			}
			if seen++; table.Field(i).Type.Kind() == reflect.Struct {
				keys(table.Field(i).Type)
			}
		}
	}
	keys(reflect.TypeFor[Config]())
	if seen < 30 {
		t.Errorf("only %d keys", seen)
	}
}
