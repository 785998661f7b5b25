package network

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/host/regular"
)

// cniConfig is a CNI configuration as it was read: the file itself, or an equal list with the
// plugins inlined.
type cniConfig struct {
	File  string          `json:"file,omitempty"`
	Bytes json.RawMessage `json:"config"`
}

// list parses the configuration.
func (c cniConfig) list() (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(c.Bytes)
	if err == nil && len(list.Plugins) == 0 {
		err = fmt.Errorf("no plugins")
	}
	if err != nil {
		return nil, fmt.Errorf("read CNI configuration %q: %w: %w", c.File, err, errdefs.ErrUnavailable)
	}
	return list, nil
}

// findConfig reads the first CNI configuration of a directory; found is false without one. A
// first file that is broken is an error, not a reason to take the next one: pods would end up in
// the wrong network.
func findConfig(dir string) (conf cniConfig, found bool, err error) {
	if dir == "" {
		return conf, false, nil
	}
	files, err := libcni.ConfFiles(dir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		return conf, false, fmt.Errorf("list CNI configurations: %w: %w", err, errdefs.ErrUnavailable)
	}
	if len(files) == 0 {
		return conf, false, nil
	}
	slices.Sort(files)
	conf, err = readConfig(files[0])
	if err != nil {
		return conf, true, fmt.Errorf("read CNI configuration %q: %w: %w", files[0], err, errdefs.ErrUnavailable)
	}
	return conf, true, nil
}

// maxConfig bounds a CNI configuration.
const maxConfig = 4 << 20

func readConfig(file string) (cniConfig, error) {
	data, err := regular.ReadConfigured(file, maxConfig)
	if err != nil {
		return cniConfig{}, err
	}
	var shape struct {
		Type    string `json:"type"`
		Plugins []json.RawMessage
	}
	if err := json.Unmarshal(data, &shape); err != nil {
		return cniConfig{}, err
	}
	var list *libcni.NetworkConfigList
	if shape.Type != "" && shape.Plugins == nil { // one plugin's configuration, of CNI before lists
		plugin, err := libcni.NetworkPluginConfFromBytes(data)
		if err != nil {
			return cniConfig{}, err
		}
		if list, err = libcni.ConfListFromConf(plugin); err != nil {
			return cniConfig{}, err
		}
	} else if list, err = libcni.NetworkConfFromFile(file); err != nil {
		return cniConfig{}, err
	}
	if err := checkNetworkName(list.Name); err != nil {
		return cniConfig{}, err
	}
	conf := cniConfig{File: filepath.Clean(file), Bytes: list.Bytes}
	if n := len(shape.Plugins); len(list.Plugins) > n && shape.Type == "" {
		conf.Bytes, err = inline(list)
	}
	return conf, err
}

// checkNetworkName refuses names that would lead out of the cache directory, where they become a
// part of a path.
func checkNetworkName(name string) error {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("network name %q", name)
	}
	return nil
}

// inline writes a list that took plugins from files beside it (CNI 1.1) as one that stands alone.
func inline(list *libcni.NetworkConfigList) ([]byte, error) {
	whole := map[string]any{}
	if err := json.Unmarshal(list.Bytes, &whole); err != nil {
		return nil, err
	}
	var plugins []json.RawMessage
	for _, p := range list.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	whole["plugins"], whole["loadOnlyInlinedPlugins"] = plugins, true
	return json.Marshal(whole)
}

// cniArgs tell plugins of the pod; the names are those that every Kubernetes runtime uses. They
// travel as one string, NAME=VALUE;NAME=VALUE, so that a value must not look like more of them.
func cniArgs(p Pod) ([][2]string, error) {
	args := [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", p.Namespace},
		{"K8S_POD_NAME", p.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", p.ID},
		{"K8S_POD_UID", p.UID},
	}
	for _, a := range args {
		if strings.ContainsAny(a[1], ";=") {
			return nil, fmt.Errorf("%s %q: contains a semicolon or an equals sign: %w", a[0], a[1], errdefs.ErrInvalidArgument)
		}
	}
	return args, nil
}

// Annotations of Kubernetes that limit a pod's bandwidth, in bits per second.
const (
	ingressBandwidth = "kubernetes.io/ingress-bandwidth"
	egressBandwidth  = "kubernetes.io/egress-bandwidth"
)

type cniPort struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// capabilities are the arguments for plugins that declare to want them (CNI's CONVENTIONS.md).
func capabilities(p Pod) (map[string]any, error) {
	ports, err := leasePorts(p.Ports)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	var mappings []cniPort
	for _, m := range ports {
		mappings = append(mappings, cniPort{HostPort: int32(m.HostPort), ContainerPort: int32(m.ContainerPort), Protocol: m.Protocol, HostIP: m.HostIP})
	}
	if mappings != nil {
		out["portMappings"] = mappings
	}
	if p.CgroupParent != "" {
		out["cgroupPath"] = p.CgroupParent
	}
	if len(p.Annotations) > 0 {
		out["io.kubernetes.cri.pod-annotations"] = p.Annotations // as containerd and CRI-O call it
	}
	dns := map[string][]string{}
	for name, values := range map[string][]string{"servers": p.DNS.Servers, "searches": p.DNS.Searches, "options": p.DNS.Options} {
		if len(values) > 0 {
			dns[name] = values
		}
	}
	if len(dns) > 0 {
		out["dns"] = dns
	}
	limits := map[string]int64{}
	for annotation, name := range map[string]string{ingressBandwidth: "ingress", egressBandwidth: "egress"} {
		value, ok := p.Annotations[annotation]
		if !ok {
			continue
		}
		rate, err := bandwidth(value)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", annotation, err)
		}
		limits[name+"Rate"], limits[name+"Burst"] = rate, math.MaxInt32
	}
	if len(limits) > 0 {
		out["bandwidth"] = limits
	}
	return out, nil
}

// bandwidth parses a rate in bits per second; Kubernetes allows 1k to 1P.
func bandwidth(s string) (int64, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, fmt.Errorf("bandwidth %q: %w: %w", s, err, errdefs.ErrInvalidArgument)
	}
	if v := q.Value(); v >= 1000 && v <= 1_000_000_000_000_000 {
		return v, nil
	}
	return 0, fmt.Errorf("bandwidth %q: less than 1k or more than 1P: %w", s, errdefs.ErrInvalidArgument)
}
