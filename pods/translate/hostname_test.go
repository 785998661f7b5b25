package translate

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// NW2, NW3
func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 61)
	for _, tt := range []struct{ pod, spec, want, err string }{
		{"p", "", "p", ""},
		{"a.b", "", "a.b", ""},
		{"p", "hostname: h", "h", ""},
		{"p", "hostname: h\nhostnameOverride: o.example", "o.example", ""},
		{long + "a-b", "", long + "a", ""},
		{long + ".-b", "", long, ""},
		{long + "bbb", "", long + "bb", ""},
		{"p", "hostNetwork: true", "edge-1", ""},
		{"p", "hostnameOverride: " + strings.Repeat("o", 64), strings.Repeat("o", 64), ""},
		{"p", "hostnameOverride: " + strings.Repeat("o", 65), "", `spec.hostnameOverride: "` + strings.Repeat("o", 65) + `" has more than 64 characters: invalid argument`},
		{"p", "subdomain: s", "p", ""},
		{"p", "setHostnameAsFQDN: true", "p", ""},
		{"p", "subdomain: s\nsetHostnameAsFQDN: true", "p.s.default.svc.cluster.local", ""},
		{"p", "subdomain: s\nsetHostnameAsFQDN: true\nhostnameOverride: o", "o", ""},
		{strings.Repeat("p", 36), "subdomain: s\nsetHostnameAsFQDN: true", strings.Repeat("p", 36) + ".s.default.svc.cluster.local", ""},
		{strings.Repeat("p", 37), "subdomain: s\nsetHostnameAsFQDN: true", "", "failed to construct FQDN from pod hostname and cluster domain, FQDN " +
			strings.Repeat("p", 37) + ".s.default.svc.cluster.local is too long (64 characters is the max, 65 characters requested)"},
	} {
		t.Run(tt.pod+" "+tt.spec, func(t *testing.T) {
			pod := specPod(t, tt.spec, "")
			pod.Name = tt.pod
			got, err := Hostname(pod, testNode())
			checkText(t, err, tt.err, errdefs.IsInvalidArgument)
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if config, _, err := Sandbox(input(pod)); tt.err == "" && !pod.Spec.HostNetwork && (err != nil || config.GetHostname() != tt.want) {
				t.Errorf("sandbox: %q, %v", config.GetHostname(), err)
			}
		})
	}
	node := testNode()
	node.ClusterDomain = ""
	if got, err := Hostname(specPod(t, "subdomain: s\nsetHostnameAsFQDN: true", ""), node); got != "web" || err != nil {
		t.Errorf("without a cluster domain: %q, %v", got, err)
	}
}

// NW8, NW10
func TestHostsFile(t *testing.T) {
	const local = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	const alias = "hostAliases: [{ip: 192.0.2.1, hostnames: [a, b.example]}, {ip: '2001:db8::1', hostnames: [c]}]"
	const aliases = "\n# Entries added by HostAliases.\n192.0.2.1\ta\tb.example\n2001:db8::1\tc\n"
	for _, tt := range []struct{ name, spec, want string }{
		{"nothing to add", "", ""},
		{"node's network", "hostNetwork: true", ""},
		{"node's network has no FQDN", "hostNetwork: true\nsubdomain: s", ""},
		{"aliases", alias, local + "10.1.0.7\tweb\n2001:db8:1::7\tweb\n" + aliases},
		{"FQDN", "hostname: h\nsubdomain: s", local + "10.1.0.7\th.s.default.svc.cluster.local\th\n2001:db8:1::7\th.s.default.svc.cluster.local\th\n"},
		{"aliases in the node's network", "hostNetwork: true\nsubdomain: s\n" + alias,
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1\tlocalhost\n198.51.100.4\tedge-1\n" + aliases},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(HostsFile(input(specPod(t, tt.spec, "")))); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
