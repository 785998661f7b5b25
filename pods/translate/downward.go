package translate

import (
	"math/big"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FieldRef is the value of a field of the pod for the downward API in env. A label or annotation
// that the pod does not have is empty.
//
// # Errors
//
// ErrInvalidArgument for a path that variables cannot have; ErrFailedPrecondition for the node's
// address where it has none.
func FieldRef(in Input, ref *corev1.ObjectFieldSelector) (string, error) {
	pod := in.Pod
	if v := ref.APIVersion; v != "" && v != "v1" {
		return "", invalid("fieldRef.apiVersion", "unsupported pod version: %s", v)
	}
	if path, key, ok := subscript(ref.FieldPath); ok {
		switch path {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	ips := in.IPs
	if pod.Spec.HostNetwork && len(ips) == 0 {
		ips = in.Node.IPs
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName, nil
		}
		return in.Node.Name, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		if len(in.Node.IPs) == 0 {
			return "", classed(errdefs.ErrFailedPrecondition, "fieldRef %s: node %q has no IP address", ref.FieldPath, in.Node.Name)
		}
		if ref.FieldPath == "status.hostIP" {
			return in.Node.IPs[0], nil
		}
		return strings.Join(in.Node.IPs, ","), nil
	case "status.podIP":
		return strings.Join(ips[:min(len(ips), 1)], ","), nil
	case "status.podIPs":
		return strings.Join(ips, ","), nil
	}
	return "", invalid("fieldRef.fieldPath", "field label not supported: %s", ref.FieldPath)
}

// subscript splits metadata.labels['key'].
func subscript(path string) (field, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	field, key, ok = strings.Cut(inner, "['")
	return field, key, ok && field != ""
}

// ResourceFieldRef is a request or limit of a container, in units of the divisor and rounded up. A
// limit of CPU, memory or ephemeral storage that the container does not have is the pod's, else
// what the node can give. c is the container that counts where ref names none, and may be nil
// where it does.
//
// # Errors
//
// ErrInvalidArgument for another resource; ErrNotFound for a container that the pod does not have.
func ResourceFieldRef(in Input, c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		if c = namedContainer(in.Pod, ref.ContainerName); c == nil {
			return "", classed(errdefs.ErrNotFound, "container %s not found", ref.ContainerName)
		}
	}
	if c == nil {
		return "", invalid("resourceFieldRef.containerName", "is empty")
	}
	kind, rest, _ := strings.Cut(ref.Resource, ".")
	name := corev1.ResourceName(rest)
	basic := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
	huge := strings.HasPrefix(rest, corev1.ResourceHugePagesPrefix)
	var q resource.Quantity
	switch {
	case kind == "limits" && basic:
		q = limitOrMost(in, c, name)
	case kind == "limits" && huge:
		q = c.Resources.Limits[name]
	case kind == "requests" && (basic || huge):
		q = c.Resources.Requests[name]
	default:
		return "", invalid("resourceFieldRef.resource", "unsupported container resource : %s", ref.Resource)
	}
	return divide(q, ref.Divisor), nil
}

// limitOrMost is the container's limit, or what the container could use without one.
func limitOrMost(in Input, c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	if q, ok := c.Resources.Limits[name]; ok && !q.IsZero() {
		return q
	}
	if r := in.Pod.Spec.Resources; r != nil && name != corev1.ResourceEphemeralStorage {
		if q, ok := r.Limits[name]; ok && !q.IsZero() {
			return q
		}
	}
	if q, ok := in.Node.Allocatable[name]; ok {
		return q
	}
	return c.Resources.Limits[name]
}

func namedContainer(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// divide is an amount in units of the divisor, rounded up; a divisor of zero is 1.
func divide(q, divisor resource.Quantity) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if q.Sign() <= 0 || divisor.Sign() <= 0 {
		return "0"
	}
	ratio := new(big.Rat).Quo(rational(q), rational(divisor))
	up := new(big.Int).Add(ratio.Num(), ratio.Denom())
	up.Sub(up, big.NewInt(1))
	return up.Quo(up, ratio.Denom()).String()
}

// rational is a quantity exactly. Quantities have at most nine digits after the point.
func rational(q resource.Quantity) *big.Rat {
	copied := q.DeepCopy() // AsDec changes its receiver
	dec := copied.AsDec()
	r := new(big.Rat).SetInt(dec.UnscaledBig())
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(dec.Scale(), -dec.Scale()))), nil)
	if dec.Scale() < 0 {
		return r.Mul(r, new(big.Rat).SetInt(scale))
	}
	return r.Quo(r, new(big.Rat).SetInt(scale))
}
