package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/pods/manifest/validation"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// defaultFileMode is that of files in volumes.
const defaultFileMode int32 = 0o644

// set gives a field its default where the manifest leaves it out.
func set[T comparable](field *T, value T) bool {
	var zero T
	if *field != zero {
		return false
	}
	*field = value
	return true
}

// setPointer is set for an optional field.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// defaultPod sets the API server's defaults, and those of its admission (AD1, AD16, SA3). It
// returns the paths that Object.Defaulted tells of.
func defaultPod(pod *corev1.Pod) []string {
	var defaulted []string
	s := &pod.Spec
	pod.APIVersion, pod.Kind = "v1", KindPod
	if set(&s.RestartPolicy, corev1.RestartPolicyAlways) {
		defaulted = append(defaulted, "spec.restartPolicy")
	}
	setPointer(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	if set(&s.DNSPolicy, corev1.DNSClusterFirst) {
		defaulted = append(defaulted, "spec.dnsPolicy")
	}
	set(&s.SchedulerName, corev1.DefaultSchedulerName)
	setPointer(&s.SecurityContext, corev1.PodSecurityContext{})
	setPointer(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	set(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	set(&s.ServiceAccountName, "default")
	set(&s.DeprecatedServiceAccount, s.ServiceAccountName)
	if s.Priority == nil {
		setPointer(&s.Priority, validation.BuiltinPriorities()[s.PriorityClassName])
	}
	setPointer(&s.PreemptionPolicy, corev1.PreemptLowerPriority)
	for _, c := range Containers(pod) {
		defaultContainer(c.Container, s.HostNetwork)
		if set(&c.ImagePullPolicy, pullPolicy(c.Image)) {
			defaulted = append(defaulted, c.Path+".imagePullPolicy")
		}
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		defaultVolume(v)
		if v.Image != nil && set(&v.Image.PullPolicy, pullPolicy(v.Image.Reference)) {
			defaulted = append(defaulted, validation.VolumePath(i)+".image.pullPolicy")
		}
	}
	defaultResources(pod)
	return defaulted
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	set(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	set(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		p := &c.Ports[i]
		set(&p.Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			set(&p.HostPort, p.ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			set(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p != nil {
			defaultProbe(p)
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTP(h.HTTPGet)
			}
		}
	}
}

// defaultProbe sets PR1's values.
func defaultProbe(p *corev1.Probe) {
	set(&p.TimeoutSeconds, 1)
	set(&p.PeriodSeconds, 10)
	set(&p.SuccessThreshold, 1)
	set(&p.FailureThreshold, 3)
	defaultHTTP(p.HTTPGet)
	if p.GRPC != nil {
		setPointer(&p.GRPC.Service, "")
	}
}

func defaultHTTP(h *corev1.HTTPGetAction) {
	if h != nil {
		set(&h.Path, "/")
		set(&h.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		setPointer(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.ConfigMap != nil {
		setPointer(&v.ConfigMap.DefaultMode, defaultFileMode)
	}
	if v.Secret != nil {
		setPointer(&v.Secret.DefaultMode, defaultFileMode)
	}
	if v.DownwardAPI != nil {
		setPointer(&v.DownwardAPI.DefaultMode, defaultFileMode)
		defaultFiles(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		setPointer(&v.Projected.DefaultMode, defaultFileMode)
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				defaultFiles(s.DownwardAPI.Items)
			}
		}
	}
}

func defaultFiles(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if ref := items[i].FieldRef; ref != nil {
			set(&ref.APIVersion, "v1")
		}
	}
}

// defaultResources rounds amounts up to thousandths and requests what is limited. What a Pod as a
// whole requests is what its containers do, where they request something, and else its limit.
func defaultResources(pod *corev1.Pod) {
	for _, c := range Containers(pod) {
		round(c.Resources.Requests)
		round(c.Resources.Limits)
	}
	round(pod.Spec.Overhead)
	whole := pod.Spec.Resources
	pod.Spec.Resources = nil
	runtimeclass.Default(pod)
	if whole == nil {
		return
	}
	round(whole.Requests)
	round(whole.Limits)
	requests, limits := runtimeclass.EffectiveRequests(pod, nil), runtimeclass.EffectiveLimits(pod, nil)
	for name, q := range limits {
		if len(whole.Limits)+len(whole.Requests) > 0 && validation.IsHugePages(name) && !validation.Has(whole.Requests, name) {
			add(&whole.Limits, name, q)
		}
	}
	for name, q := range requests {
		if len(whole.Limits) > 0 && isShared(name) {
			add(&whole.Requests, name, q)
		}
	}
	pod.Spec.Resources = whole
	runtimeclass.Default(pod)
	if len(whole.Limits) > 0 || len(whole.Requests) == 0 {
		return
	}
	for name, q := range limits {
		if isShared(name) && allLimit(pod, name) {
			add(&whole.Limits, name, q)
		}
	}
}

// isShared says whether containers may together request more of a resource than a Pod has.
func isShared(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory
}

// add gives a list an amount that it does not have.
func add(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if validation.Has(*list, name) {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

func allLimit(pod *corev1.Pod, name corev1.ResourceName) bool {
	for _, c := range Containers(pod) {
		if !validation.Has(c.Resources.Limits, name) {
			return false
		}
	}
	return true
}

func round(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// pullPolicy is the default: Always for what can change under its name (IM1), by the API server's
// reading, in which a digest beside the tag latest changes nothing.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, digest := strings.Cut(image, "@")
	last := name[strings.LastIndex(name, "/")+1:]
	_, tag, tagged := strings.Cut(last, ":")
	if tagged && tag == "latest" || !tagged && !digest {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultConfigMap(m *corev1.ConfigMap) { m.APIVersion, m.Kind = "v1", KindConfigMap }

// defaultSecret merges stringData into data, as the API server does when it stores a Secret.
func defaultSecret(s *corev1.Secret) {
	s.APIVersion, s.Kind = "v1", KindSecret
	set(&s.Type, corev1.SecretTypeOpaque)
	for key, text := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(text)
	}
	s.StringData = nil
}

func defaultClaim(c *corev1.PersistentVolumeClaim) {
	c.APIVersion, c.Kind = "v1", KindClaim
	setPointer(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}
