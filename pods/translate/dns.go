package translate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kubernetes' limits of a resolv.conf. The length is that of all search domains with the spaces
// between them.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
	maxSearchDomain = 253
)

// clusterOption is the option with which names of Services are tried before others.
const clusterOption = "ndots:5"

// Resolv is a resolv.conf.
type Resolv struct{ Servers, Searches, Options []string }

// ParseResolv reads a resolv.conf as a kubelet does: all nameserver lines count, of the search and
// options lines the last.
func ParseResolv(data []byte) Resolv {
	var r Resolv
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			r.Servers = append(r.Servers, fields[1:min(len(fields), 2)]...)
		case "search":
			r.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				r.Searches = append(r.Searches, s)
			}
		case "options":
			r.Options = fields[1:]
		}
	}
	return r
}

// dnsConfig is the pod's resolv.conf, nil where it is the node's and that is left to the server.
func dnsConfig(in Input) (*runtime.DNSConfig, []Note, error) {
	pod, node := in.Pod, in.Node
	var base Resolv
	var notes []Note
	policy := pod.Spec.DNSPolicy
	if policy == "" {
		policy = corev1.DNSClusterFirst
	}
	switch {
	case policy == corev1.DNSNone:
		if pod.Spec.DNSConfig == nil || len(pod.Spec.DNSConfig.Nameservers) == 0 {
			return nil, nil, invalid("spec.dnsConfig.nameservers", "dnsPolicy None needs at least one")
		}
	case policy == corev1.DNSDefault, policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork:
		base = node.Resolv
	case policy == corev1.DNSClusterFirst, policy == corev1.DNSClusterFirstWithHostNet:
		base = clusterFirst(in)
		if len(node.ClusterDNS) == 0 && in.DNSPolicyGiven {
			notes = append(notes, missingClusterDNS(pod))
		}
	default:
		return nil, nil, invalid("spec.dnsPolicy", "%q is not known", policy)
	}
	if d := pod.Spec.DNSConfig; d != nil {
		base = Resolv{
			Servers:  unique(base.Servers, d.Nameservers),
			Searches: unique(base.Searches, d.Searches),
			Options:  mergeOptions(base.Options, d.Options),
		}
	}
	base, more := fit(base)
	notes = append(notes, more...)
	if len(base.Servers) == 0 && len(base.Searches) == 0 && len(base.Options) == 0 {
		return nil, notes, nil
	}
	return &runtime.DNSConfig{Servers: base.Servers, Searches: base.Searches, Options: base.Options}, notes, nil
}

// clusterFirst is the node's resolv.conf where there is no cluster DNS.
func clusterFirst(in Input) Resolv {
	node := in.Node
	if len(node.ClusterDNS) == 0 {
		return node.Resolv
	}
	searches := node.Resolv.Searches
	if d := node.ClusterDomain; d != "" {
		searches = unique([]string{in.Pod.Namespace + ".svc." + d, "svc." + d, d}, searches)
	}
	return Resolv{Servers: node.ClusterDNS, Searches: searches, Options: []string{clusterOption}}
}

func missingClusterDNS(pod *corev1.Pod) Note {
	return Note{ReasonMissingClusterDNS, fmt.Sprintf("pod: %q. the node does not have cluster_dns configured and cannot create Pod using %q policy. "+
		"Falling back to %q policy.", podName(pod), corev1.DNSClusterFirst, corev1.DNSDefault)}
}

// unique joins lists without doubles.
func unique(lists ...[]string) []string {
	var out []string
	for _, list := range lists {
		for _, s := range list {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// mergeOptions overrides options of the same name in place and appends others.
func mergeOptions(base []string, own []corev1.PodDNSConfigOption) []string {
	out := slices.Clone(base)
	for _, o := range own {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		i := slices.IndexFunc(out, func(have string) bool {
			name, _, _ := strings.Cut(have, ":")
			return name == o.Name
		})
		if i < 0 {
			out = append(out, text)
		} else {
			out[i] = text
		}
	}
	return out
}

// fit cuts a resolv.conf to Kubernetes' limits and says what it cut.
func fit(r Resolv) (Resolv, []Note) {
	var notes []Note
	if len(r.Servers) > maxNameservers {
		r.Servers = r.Servers[:maxNameservers]
		notes = append(notes, Note{ReasonDNSConfigForming, "Nameserver limits were exceeded, some nameservers have been omitted, " +
			"the applied nameserver line is: " + strings.Join(r.Servers, " ")})
	}
	fitting := fitSearches(r.Searches)
	if len(fitting) < len(r.Searches) {
		notes = append(notes, Note{ReasonDNSConfigForming, "Search Line limits were exceeded, some search paths have been omitted, " +
			"the applied search line is: " + strings.Join(fitting, " ")})
	}
	r.Searches = fitting
	return r, notes
}

// fitSearches takes the first 32 domains, of them those that can be names, and of these as many as
// fit on the line.
func fitSearches(searches []string) []string {
	var out []string
	length := -1
	for _, s := range searches[:min(len(searches), maxSearches)] {
		if len(s) > maxSearchDomain {
			continue
		}
		if length+1+len(s) > maxSearchLength {
			break
		}
		length += 1 + len(s)
		out = append(out, s)
	}
	return out
}
