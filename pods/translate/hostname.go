package translate

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

const (
	// maxLabel is the longest host name that comes from the pod's name, in bytes.
	maxLabel = 63
	// maxHostname is the longest host name that the kernel takes, in bytes.
	maxHostname = 64
)

// Hostname is the host name that the pod's processes see: with hostNetwork the node's, else
// hostnameOverride, the FQDN with setHostnameAsFQDN, hostname, or the pod's name cut to 63 bytes.
//
// # Errors
//
// ErrInvalidArgument for a name that is too long.
func Hostname(pod *corev1.Pod, node Node) (string, error) {
	if pod.Spec.HostNetwork {
		return node.Name, nil
	}
	name, domain := shortName(pod), podDomain(pod, node)
	if len(name) > maxHostname {
		return "", invalid("spec.hostnameOverride", "%q has more than %d characters", name, maxHostname)
	}
	if name == "" {
		return "", invalid("metadata.name", "%q gives no host name", pod.Name)
	}
	if domain == "" || !is(pod.Spec.SetHostnameAsFQDN) {
		return name, nil
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxHostname {
		return "", classed(errdefs.ErrInvalidArgument, "failed to construct FQDN from pod hostname and cluster domain, "+
			"FQDN %s is too long (%d characters is the max, %d characters requested)", fqdn, maxHostname, len(fqdn))
	}
	return fqdn, nil
}

// shortName is the host name without a domain.
func shortName(pod *corev1.Pod) string {
	if name := pod.Spec.HostnameOverride; name != nil && *name != "" {
		return *name
	}
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	if len(name) <= maxLabel {
		return name
	}
	return strings.TrimRight(name[:maxLabel], "-.")
}

// podDomain is what follows the host name in the FQDN, "" for a pod without one.
func podDomain(pod *corev1.Pod, node Node) string {
	if pod.Spec.Subdomain == "" || node.ClusterDomain == "" || pod.Spec.HostNetwork {
		return ""
	}
	if name := pod.Spec.HostnameOverride; name != nil && *name != "" {
		return "" // it takes precedence over hostname and subdomain
	}
	return fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, node.ClusterDomain)
}

// HostsFile is the content of a kubelet's /etc/hosts for the pod, for Input.Hosts. It is nil where
// the file that the server writes says the same: without hostAliases and FQDN.
func HostsFile(in Input) []byte {
	pod := in.Pod
	domain := podDomain(pod, in.Node)
	if len(pod.Spec.HostAliases) == 0 && domain == "" {
		return nil
	}
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(in.Node.Hosts)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		for _, ip := range in.IPs {
			if domain != "" {
				fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, shortName(pod), domain, shortName(pod))
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, shortName(pod))
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, alias := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
		}
	}
	return b.Bytes()
}
