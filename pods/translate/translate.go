// Package translate turns a pod and what is known of the node into the configurations of the CRI,
// with a kubelet's values, labels and messages. It is pure: it reads no files and no clock, and
// changes nothing that it is given.
package translate

import (
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Node is what is known of the node.
type Node struct {
	// Name is the node's name in Kubernetes; IPs are its addresses, the primary one first.
	Name string
	IPs  []string
	// Memory is the capacity in bytes, Allocatable what pods may request of everything.
	Memory      int64
	Allocatable corev1.ResourceList
	// ClusterDNS are the servers of dnsPolicy ClusterFirst. Without any the policy is Default.
	ClusterDNS []string
	// ClusterDomain is the domain of Services. Without one no pod has an FQDN.
	ClusterDomain string
	// SeccompProfiles is the folder below which localhostProfile names a file. Without one (sunaba
	// run) the profile is an absolute path.
	SeccompProfiles string
	// SeccompDefault says that containers without a profile have the server's default one.
	SeccompDefault bool
	// Resolv is the node's resolv.conf for dnsPolicy Default; the zero value leaves it to the
	// server.
	Resolv Resolv
	// Hosts is the content of the node's /etc/hosts.
	Hosts []byte
	// MaskedPaths and ReadonlyPaths are what a container may not see and not write in /proc and
	// /sys by default. Container fails without them.
	MaskedPaths, ReadonlyPaths []string
	// CgroupV2 says that containers are in cgroups of version 2, SwapAccounting that their swap can
	// be limited.
	CgroupV2, SwapAccounting bool
	// HugePageSizes are the node's in the form of the hugetlb controller: "2MB", "1GB".
	HugePageSizes []string
}

// Objects are the ConfigMaps and Secrets that pods refer to. A Secret's stringData is in its data.
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, bool)
	Secret(namespace, name string) (*corev1.Secret, bool)
}

// Input is a pod and where it is to run. The pod has its defaults, UID and overhead.
type Input struct {
	Pod  *corev1.Pod
	Node Node
	// Objects may be nil if the pod names none.
	Objects Objects
	// Handler is the name of the pod's runtime handler, "" for the server's default.
	Handler string
	// Attempt counts the pod's sandboxes from 0.
	Attempt uint32
	// IPs are the sandbox's addresses, the primary one first. With hostNetwork the node's count.
	IPs []string
	// LogDirectory is the folder of the logs of all pods. A pod's is NAMESPACE_NAME_UID in it.
	LogDirectory string
	// Mark is the value of the annotation MarkAnnotation, or of RunAnnotation with Run; "" leaves it
	// out.
	Mark string
	Run  bool
	// UserNamespace is the first of the 65,536 host ids of a pod with hostUsers false.
	UserNamespace uint32
	// Hosts is the file of the node that is mounted at /etc/hosts; "" leaves it to the server.
	Hosts string
	// DNSPolicyGiven says that the manifest itself names the dnsPolicy, so that a missing cluster
	// DNS is worth an event.
	DNSPolicyGiven bool
}

// ContainerInput is what is known of one container when it is created.
type ContainerInput struct {
	// Attempt is the container's restart count.
	Attempt uint32
	// Image is the image as the server has it. It is needed: its user counts for runAsNonRoot.
	Image *runtime.Image
	// ImageRef is the reference of the image that was found or pulled; "" is the container's own.
	ImageRef string
	// Mounts are those of the container's volumes. They are not changed.
	Mounts []*runtime.Mount
	// TerminationLog is the file of the node that is mounted at terminationMessagePath; "" for none.
	TerminationLog string
	// TargetID is the container whose process namespace an ephemeral container joins.
	TargetID string
	// Ephemeral says that the container is an ephemeral one.
	Ephemeral bool
}

// Note is an event of type Warning that a translation is worth.
type Note struct{ Reason, Message string }

// Reasons of notes.
const (
	ReasonMissingClusterDNS = "MissingClusterDNS"
	ReasonDNSConfigForming  = "DNSConfigForming"
	ReasonInvalidEnvNames   = "InvalidEnvironmentVariableNames"
)

// is says whether a field is set and true.
func is(b *bool) bool { return b != nil && *b }

// first is the first of two fields that is set.
func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// securityContexts are the container's and the pod's, never nil.
func securityContexts(pod *corev1.Pod, c *corev1.Container) (*corev1.SecurityContext, *corev1.PodSecurityContext) {
	own, all := c.SecurityContext, pod.Spec.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	if all == nil {
		all = &corev1.PodSecurityContext{}
	}
	return own, all
}

// podName is the pod as a kubelet's messages have it.
func podName(pod *corev1.Pod) string {
	return pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")"
}
