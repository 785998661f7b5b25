package validation

import (
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// checkResources checks a container's amounts (RE14, RE17).
func checkResources(p *fields.Problems, path string, r *corev1.ResourceRequirements) {
	checkAmounts(p, path, r)
	for _, name := range slices.Concat(sorted(r.Limits), sorted(r.Requests)) {
		if at := path + ".requests[" + string(name) + "]"; !isNative(name) {
			if Has(r.Limits, name) {
				at = path + ".limits[" + string(name) + "]"
			}
			p.Once(at, "is not supported: there are no device plugins; use CDI devices, by an annotation cdi.k8s.io/… of the Pod")
		}
	}
	pages := false
	for name := range r.Requests {
		pages = pages || IsHugePages(name)
	}
	if pages && !Has(r.Requests, corev1.ResourceCPU) && !Has(r.Requests, corev1.ResourceMemory) {
		p.Add(path, "hugepages need a request of cpu or memory beside them")
	}
}

// isNative says whether a container of a node without device plugins can have a resource.
func isNative(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || IsHugePages(name)
}

// checkAmounts checks signs, names, and requests against limits.
func checkAmounts(p *fields.Problems, path string, r *corev1.ResourceRequirements) {
	for _, list := range []struct {
		name string
		corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		at := path + "." + list.name
		if err := runtimeclass.CheckQuantities(at, list.ResourceList); err != nil {
			text, _ := strings.CutSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error())
			p.Add("", "%s", text)
			continue
		}
		for _, name := range sorted(list.ResourceList) {
			if IsHugePages(name) {
				checkHugePages(p, at+"["+string(name)+"]", name, list.ResourceList[name])
			}
		}
	}
	for _, name := range sorted(r.Requests) {
		at := path + ".requests[" + string(name) + "]"
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		switch {
		case IsHugePages(name) && (!limited || request.Cmp(limit) != 0): // RE14
			p.Value(at, request.String(), "must be equal to the limit of "+string(name))
		case limited && request.Cmp(limit) > 0:
			p.Value(at, request.String(), "must be less than or equal to the limit of "+limit.String())
		}
	}
}

// checkHugePages checks the size of pages and that the amount is a number of them.
func checkHugePages(p *fields.Problems, path string, name corev1.ResourceName, amount resource.Quantity) {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	switch {
	case err != nil || size.Value() <= 0:
		p.Add(path, "must be hugepages- and a size, as hugepages-2Mi")
	case amount.Value()%size.Value() != 0:
		p.Value(path, amount.String(), "must be a whole number of pages")
	}
}

// checkResize checks the form of RE15's policies.
func checkResize(p *fields.Problems, pod *corev1.Pod, c Container) {
	seen := map[corev1.ResourceName]bool{}
	for _, r := range c.ResizePolicy {
		at := c.Path + ".resizePolicy[" + string(r.ResourceName) + "]"
		fields.OneOf(p, at+".resourceName", r.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		fields.OneOf(p, at+".restartPolicy", r.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if seen[r.ResourceName] {
			p.Add(at, "stands there twice")
		}
		seen[r.ResourceName] = true
		if r.RestartPolicy == corev1.RestartContainer && pod.Spec.RestartPolicy == corev1.RestartPolicyNever && c.RestartPolicy == nil {
			p.Value(at+".restartPolicy", string(r.RestartPolicy), "must be NotRequired with restartPolicy Never of the Pod")
		}
	}
}

// checkPodResources checks amounts of the Pod as a whole (RE16) and its overhead.
func checkPodResources(p *fields.Problems, pod *corev1.Pod) {
	if err := runtimeclass.CheckQuantities("spec.overhead", pod.Spec.Overhead); err != nil {
		text, _ := strings.CutSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error())
		p.Add("", "%s", text)
	}
	whole := pod.Spec.Resources
	if whole == nil {
		return
	}
	checkAmounts(p, "spec.resources", whole)
	for _, list := range []corev1.ResourceList{whole.Limits, whole.Requests} {
		for _, name := range sorted(list) {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !IsHugePages(name) {
				p.Value("spec.resources", string(name), "only cpu, memory and hugepages can be given for the Pod as a whole")
			}
		}
	}
	parts := pod.DeepCopy()
	parts.Spec.Resources = nil
	sum := runtimeclass.EffectiveRequests(parts, nil)
	for _, name := range sorted(whole.Requests) {
		have, want := whole.Requests[name], sum[name]
		if have.Cmp(want) < 0 {
			p.Value("spec.resources.requests["+string(name)+"]", have.String(),
				"must be greater than or equal to what the containers request, "+want.String())
		}
	}
	for _, c := range Containers(pod) {
		for _, name := range sorted(c.Resources.Limits) {
			limit, most := c.Resources.Limits[name], whole.Limits[name]
			if Has(whole.Limits, name) && limit.Cmp(most) > 0 {
				p.Value(c.Path+".resources.limits["+string(name)+"]", limit.String(),
					"must be less than or equal to the Pod's limit of "+most.String())
			}
		}
	}
}

// Has says whether a list has an amount, be it zero.
func Has(list corev1.ResourceList, name corev1.ResourceName) bool {
	_, ok := list[name]
	return ok
}

// IsHugePages says whether a resource is pages of some size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
