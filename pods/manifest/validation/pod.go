// Package validation refuses objects that the API server would refuse, or whose values have no
// effect on one node without an API server. It judges form alone: it reads no files and knows no
// node.
package validation

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// maxContainers and maxVolumes are those of one Pod.
const maxContainers, maxVolumes = 500, 1000

// Pod refuses what the API server would refuse, and values that have no effect on one node. It
// wants a Pod with its defaults, and returns notes on values that have no effect.
func Pod(p *fields.Problems, pod *corev1.Pod) []string {
	s := &pod.Spec
	Object(p, pod)
	if len(s.Containers) == 0 {
		p.Add("spec.containers", "is required")
	}
	if n := len(s.Containers) + len(s.InitContainers); n > maxContainers {
		p.Add("spec.containers", "has %d with those of initContainers; at most %d can be had", n, maxContainers)
		return nil
	}
	if len(s.Volumes) > maxVolumes {
		p.Add("spec.volumes", "has %d; at most %d can be had", len(s.Volumes), maxVolumes)
		return nil
	}
	checkLife(p, s)
	checkPriority(p, s)
	notes := checkPlacement(p, s)
	checkNames(p, s)
	checkDNS(p, s)
	checkNamespaces(p, s)
	checkPodSecurity(p, s)
	checkPodResources(p, pod)
	checkAppArmorAnnotations(p, pod)
	volumes := checkVolumes(p, pod)
	checkContainers(p, pod, volumes)
	return notes
}

// checkLife checks the fields about how a Pod starts, ends and is restarted.
func checkLife(p *fields.Problems, s *corev1.PodSpec) {
	fields.OneOf(p, "spec.restartPolicy", s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	fields.Between(p, "spec.terminationGracePeriodSeconds", *s.TerminationGracePeriodSeconds, 0, math.MaxInt32)
	if d := s.ActiveDeadlineSeconds; d != nil {
		fields.Between(p, "spec.activeDeadlineSeconds", *d, 1, math.MaxInt32)
	}
	if s.OS != nil { // AD9: a Pod of another system fails when it is admitted
		fields.OneOf(p, "spec.os.name", s.OS.Name, corev1.Linux, corev1.Windows)
	}
	if is(s.AutomountServiceAccountToken) { // SA1
		p.Add("spec.automountServiceAccountToken", "there is no API server, so there is no token: remove it or set it to false")
	}
	if s.ServiceAccountName != s.DeprecatedServiceAccount {
		p.Value("spec.serviceAccount", s.DeprecatedServiceAccount, "must be equal to serviceAccountName")
	}
	p.Value("spec.serviceAccountName", s.ServiceAccountName, validation.IsDNS1123Subdomain(s.ServiceAccountName)...)
	if c := s.RuntimeClassName; c != nil && *c != "" { // AD10
		p.Value("spec.runtimeClassName", *c, validation.IsDNS1123Subdomain(*c)...)
	}
	for i, ref := range s.ImagePullSecrets {
		checkReference(p, fmt.Sprintf("spec.imagePullSecrets[%d].name", i), ref.Name)
	}
}

// checkReference checks the name of another object.
func checkReference(p *fields.Problems, path, name string) {
	if p.Required(path, name) {
		p.Value(path, name, validation.IsDNS1123Subdomain(name)...)
	}
}

// checkPriority checks AD16 and AD17.
func checkPriority(p *fields.Problems, s *corev1.PodSpec) {
	fields.OneOf(p, "spec.preemptionPolicy", *s.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	name := s.PriorityClassName
	if name == "" {
		return
	}
	number, known := BuiltinPriorities()[name]
	switch {
	case !known:
		p.Add("spec.priorityClassName", "no PriorityClass with name %s was found (there are: %s, %s); give spec.priority instead",
			fields.Quote(name), NodeCritical, ClusterCritical)
	case *s.Priority != number:
		p.Value("spec.priority", *s.Priority, fmt.Sprintf("must not be given with a priorityClassName, or be its %d", number))
	}
}

// checkPlacement checks the fields about choosing a node (AD4, AD5).
func checkPlacement(p *fields.Problems, s *corev1.PodSpec) (notes []string) {
	if s.SchedulerName != corev1.DefaultSchedulerName {
		p.Value("spec.schedulerName", s.SchedulerName, "there are no schedulers on one node: remove it")
	}
	if s.NodeName != "" {
		p.Value("spec.nodeName", s.NodeName, validation.IsDNS1123Subdomain(s.NodeName)...)
		if len(s.SchedulingGates) > 0 {
			p.Add("spec.nodeName", "must not be given with schedulingGates")
		}
	}
	gates := map[string]bool{}
	for i, g := range s.SchedulingGates {
		path := fmt.Sprintf("spec.schedulingGates[%d].name", i)
		p.Value(path, g.Name, validation.IsQualifiedName(g.Name)...)
		if gates[g.Name] {
			p.Value(path, g.Name, "stands there twice")
		}
		gates[g.Name] = true
	}
	checkLabels(p, "spec.nodeSelector", s.NodeSelector)
	if a := s.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		checkNodeSelector(p, a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	for i, t := range s.Tolerations {
		path := fmt.Sprintf("spec.tolerations[%d]", i)
		checkToleration(p, path, t)
		if t.Key != "" && !slices.Contains(pressures, t.Key) {
			notes = append(notes, path+": has no effect on one node, which has no taints but those of pressure")
		}
	}
	return notes
}

// pressures are the taints that a node without an API server can have (EX10).
var pressures = []string{corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure}

func checkNodeSelector(p *fields.Problems, s *corev1.NodeSelector) {
	const path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	if len(s.NodeSelectorTerms) == 0 {
		p.Add(path, "is required")
	}
	for i, term := range s.NodeSelectorTerms {
		for j, r := range term.MatchExpressions {
			at := fmt.Sprintf("%s[%d].matchExpressions[%d]", path, i, j)
			p.Value(at+".key", r.Key, validation.IsQualifiedName(r.Key)...)
			checkRequirement(p, at, r)
		}
		for j, r := range term.MatchFields {
			at := fmt.Sprintf("%s[%d].matchFields[%d]", path, i, j)
			if r.Key != "metadata.name" {
				p.Value(at+".key", r.Key, "only metadata.name can be matched")
			}
			fields.OneOf(p, at+".operator", r.Operator, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn)
			if len(r.Values) != 1 {
				p.Add(at+".values", "must have one value")
			}
		}
	}
}

func checkRequirement(p *fields.Problems, path string, r corev1.NodeSelectorRequirement) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			p.Add(path+".values", "is required with operator %s", r.Operator)
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			p.Add(path+".values", "must not be given with operator %s", r.Operator)
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			p.Add(path+".values", "must have one value with operator %s", r.Operator)
		}
	default:
		fields.OneOf(p, path+".operator", r.Operator, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
			corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)
	}
}

func checkToleration(p *fields.Problems, path string, t corev1.Toleration) {
	if t.Key != "" {
		p.Value(path+".key", t.Key, validation.IsQualifiedName(t.Key)...)
	} else if t.Operator != corev1.TolerationOpExists {
		p.Add(path+".operator", "must be Exists when key is empty")
	}
	if t.Operator != "" {
		fields.OneOf(p, path+".operator", t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpGt, corev1.TolerationOpLt)
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		p.Value(path+".value", t.Value, "must be empty with operator Exists")
	} else {
		p.Value(path+".value", t.Value, validation.IsValidLabelValue(t.Value)...)
	}
	if t.Effect != "" {
		fields.OneOf(p, path+".effect", t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		p.Value(path+".effect", string(t.Effect), "must be NoExecute with tolerationSeconds")
	}
}

// checkNames checks the Pod's names in its network (NW2, NW3, NW8).
func checkNames(p *fields.Problems, s *corev1.PodSpec) {
	if s.Hostname != "" {
		p.Value("spec.hostname", s.Hostname, validation.IsDNS1123Label(s.Hostname)...)
	}
	if s.Subdomain != "" {
		p.Value("spec.subdomain", s.Subdomain, validation.IsDNS1123Label(s.Subdomain)...)
	}
	if o := s.HostnameOverride; o != nil {
		p.Value("spec.hostnameOverride", *o, validation.IsDNS1123Subdomain(*o)...)
		if len(*o) > validation.DNS1123LabelMaxLength+1 {
			p.Value("spec.hostnameOverride", *o, validation.MaxLenError(validation.DNS1123LabelMaxLength+1))
		}
		if is(s.SetHostnameAsFQDN) {
			p.Add("spec.hostnameOverride", "must not be given with setHostnameAsFQDN")
		}
		if s.HostNetwork {
			p.Add("spec.hostnameOverride", "must not be given with hostNetwork")
		}
	}
	for i, a := range s.HostAliases {
		path := fmt.Sprintf("spec.hostAliases[%d]", i)
		checkIP(p, path+".ip", a.IP)
		for j, name := range a.Hostnames {
			p.Value(fmt.Sprintf("%s.hostnames[%d]", path, j), name, validation.IsDNS1123Subdomain(name)...)
		}
	}
}

// checkIP takes what the API server takes for a new object, in one line.
func checkIP(p *fields.Problems, path, ip string) {
	for _, e := range validation.IsValidIP(field.NewPath(""), ip) {
		p.Value(path, ip, e.Detail)
		return
	}
	if net.ParseIP(ip) == nil {
		p.Value(path, ip, "must be a valid IP address")
	}
}

// Bounds of a dnsConfig, the API server's.
const maxNameservers, maxSearches, maxSearchText = 3, 32, 2048

// checkDNS checks NW4 and NW5.
func checkDNS(p *fields.Problems, s *corev1.PodSpec) {
	fields.OneOf(p, "spec.dnsPolicy", s.DNSPolicy, corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	c := s.DNSConfig
	if s.DNSPolicy == corev1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		p.Add("spec.dnsConfig.nameservers", "is required with dnsPolicy None")
	}
	if c == nil {
		return
	}
	if len(c.Nameservers) > maxNameservers {
		p.Add("spec.dnsConfig.nameservers", "must not have more than %d nameservers", maxNameservers)
	}
	for i, ip := range c.Nameservers {
		checkIP(p, fmt.Sprintf("spec.dnsConfig.nameservers[%d]", i), ip)
	}
	if len(c.Searches) > maxSearches {
		p.Add("spec.dnsConfig.searches", "must not have more than %d search paths", maxSearches)
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchText {
		p.Add("spec.dnsConfig.searches", "must not have more than %d characters", maxSearchText)
	}
	for i, search := range c.Searches {
		if search == "." {
			continue
		}
		p.Value(fmt.Sprintf("spec.dnsConfig.searches[%d]", i), search,
			validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(search, "."))...)
	}
	for i, o := range c.Options {
		path := fmt.Sprintf("spec.dnsConfig.options[%d]", i)
		p.Required(path+".name", o.Name)
		for _, text := range []string{o.Name, value(o.Value)} {
			if strings.ContainsAny(text, " \t\r\n") {
				p.Value(path, text, "must not have blanks: it is written into resolv.conf")
			}
		}
	}
}

// checkNamespaces checks NW1 and SE11.
func checkNamespaces(p *fields.Problems, s *corev1.PodSpec) {
	if is(s.ShareProcessNamespace) && s.HostPID {
		p.Add("spec.shareProcessNamespace", "must not be given with hostPID")
	}
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	if s.HostPID {
		p.Add("spec.hostPID", "must not be true when hostUsers is false")
	}
	if s.HostIPC {
		p.Add("spec.hostIPC", "must not be true when hostUsers is false")
	}
}

func is(b *bool) bool { return b != nil && *b }

// value is what an optional field has, or nothing.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
