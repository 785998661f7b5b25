package translate

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// NW4: the node is at 198.51.100.53 with corp.example, the cluster's DNS at 10.96.0.10.
func TestDNSPolicies(t *testing.T) {
	node := "198.51.100.53; corp.example; timeout:2"
	cluster := "10.96.0.10; default.svc.cluster.local svc.cluster.local cluster.local corp.example; ndots:5"
	for _, tt := range []struct {
		name, spec string
		noCluster  bool
		given      bool
		want       string
		reason     string
	}{
		{"none given", "", false, false, cluster, ""},
		{"Default", "dnsPolicy: Default", false, true, node, ""},
		{"ClusterFirst", "dnsPolicy: ClusterFirst", false, true, cluster, ""},
		{"ClusterFirst, host network", "dnsPolicy: ClusterFirst\nhostNetwork: true", false, true, node, ""},
		{"none given, host network", "hostNetwork: true", false, false, node, ""},
		{"ClusterFirstWithHostNet", "dnsPolicy: ClusterFirstWithHostNet\nhostNetwork: true", false, true, cluster, ""},
		{"None", "dnsPolicy: None\ndnsConfig: {nameservers: [192.0.2.1]}", false, true, "192.0.2.1; ; ", ""},
		{"ClusterFirst by default, no cluster", "dnsPolicy: ClusterFirst", true, false, node, ""},
		{"ClusterFirst in words, no cluster", "dnsPolicy: ClusterFirst", true, true, node, ReasonMissingClusterDNS},
		{"WithHostNet in words, no cluster", "dnsPolicy: ClusterFirstWithHostNet\nhostNetwork: true", true, true, node, ReasonMissingClusterDNS},
		{"Default in words, no cluster", "dnsPolicy: Default", true, true, node, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, ""))
			in.DNSPolicyGiven = tt.given
			if tt.noCluster {
				in.Node.ClusterDNS = nil
			}
			config, notes, err := Sandbox(in)
			if err != nil {
				t.Fatal(err)
			}
			d := config.GetDnsConfig()
			if got := strings.Join(d.GetServers(), " ") + "; " + strings.Join(d.GetSearches(), " ") + "; " + strings.Join(d.GetOptions(), " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if len(notes) != 0 && notes[0].Reason != tt.reason || len(notes) == 0 && tt.reason != "" {
				t.Errorf("notes %v, want %q", notes, tt.reason)
			}
		})
	}
}

func TestMissingClusterDNSText(t *testing.T) {
	in := input(specPod(t, "", ""))
	in.DNSPolicyGiven, in.Node.ClusterDNS = true, nil
	_, notes, err := Sandbox(in)
	want := `pod: "web_default(u-1)". the node does not have cluster_dns configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`
	if err != nil || len(notes) != 1 || notes[0].Message != want {
		t.Errorf("%v, %v", notes, err)
	}
}

// Where nothing is known of the node's resolv.conf it is left to the server.
func TestDNSOfTheServer(t *testing.T) {
	in := input(specPod(t, "", ""))
	in.Node.ClusterDNS, in.Node.Resolv = nil, Resolv{}
	config, _, err := Sandbox(in)
	if err != nil || config.GetDnsConfig() != nil {
		t.Errorf("%v, %v", config.GetDnsConfig(), err)
	}
}

// NW5
func TestDNSLimits(t *testing.T) {
	numbered := func(n int, form string) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf(form, i))
		}
		return list
	}
	long := strings.Repeat("l", 200)
	for _, tt := range []struct {
		name        string
		in          Resolv
		servers     int
		searches    int
		wantMessage []string
	}{
		{"within", Resolv{Servers: numbered(3, "192.0.2.%d"), Searches: numbered(32, "s%d")}, 3, 32, nil},
		{"servers", Resolv{Servers: numbered(5, "192.0.2.%d")}, 3, 0, []string{
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 192.0.2.0 192.0.2.1 192.0.2.2"}},
		{"searches", Resolv{Searches: numbered(33, "s%d")}, 0, 32, []string{
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(numbered(32, "s%d"), " ")}},
		{"characters", Resolv{Searches: numbered(11, long+".%02d")}, 0, 10, []string{
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(numbered(10, long+".%02d"), " ")}},
		{"a domain too long", Resolv{Searches: []string{"a", strings.Repeat("x", 254), strings.Repeat("y", 253)}}, 0, 2, []string{
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a " + strings.Repeat("y", 253)}},
		{"exactly 2048 characters", Resolv{Searches: append(numbered(10, long+"%02d"), strings.Repeat("z", 18))}, 0, 11, nil},
		{"2049 characters", Resolv{Searches: append(numbered(10, long+"%02d"), strings.Repeat("z", 19))}, 0, 10, []string{
			"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(numbered(10, long+"%02d"), " ")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, notes := fit(tt.in)
			if len(got.Servers) != tt.servers || len(got.Searches) != tt.searches {
				t.Errorf("%d servers, %d searches", len(got.Servers), len(got.Searches))
			}
			var messages []string
			for _, n := range notes {
				if n.Reason != "DNSConfigForming" {
					t.Errorf("reason %q", n.Reason)
				}
				messages = append(messages, n.Message)
			}
			if !reflect.DeepEqual(messages, tt.wantMessage) {
				t.Errorf("%q, want %q", messages, tt.wantMessage)
			}
		})
	}
}

// NW5: dnsConfig is merged without doubles, and options override by name.
func TestDNSMerge(t *testing.T) {
	in := input(specPod(t, "dnsConfig: {nameservers: [10.96.0.10, 192.0.2.1], searches: [corp.example, x], options: [{name: ndots, value: '1'}, {name: edns0}, {name: edns0}]}", ""))
	config, notes, err := Sandbox(in)
	if err != nil || notes != nil {
		t.Fatal(notes, err)
	}
	d := config.GetDnsConfig()
	want := "[10.96.0.10 192.0.2.1] [default.svc.cluster.local svc.cluster.local cluster.local corp.example x] [ndots:1 edns0]"
	if got := fmt.Sprint(d.GetServers(), d.GetSearches(), d.GetOptions()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	in.Node.ClusterDomain = ""
	if config, _, err = Sandbox(in); err != nil || fmt.Sprint(config.GetDnsConfig().GetSearches()) != "[corp.example x]" {
		t.Errorf("without a cluster domain: %v, %v", config.GetDnsConfig(), err)
	}
}

func TestParseResolv(t *testing.T) {
	for in, want := range map[string]Resolv{
		"": {},
		"# nameserver 1.1.1.1\nnameserver 192.0.2.1 # first\n\tnameserver\t192.0.2.2\nnameserver\n": {Servers: []string{"192.0.2.1", "192.0.2.2"}},
		"search a.example. b.example\nsearch c.example. .\n":                                        {Searches: []string{"c.example", "."}},
		"options ndots:2\noptions rotate timeout:1":                                                 {Options: []string{"rotate", "timeout:1"}},
		"domain x.example\nsortlist 1.2.3.4\n; comment\n":                                           {},
	} {
		if got := ParseResolv([]byte(in)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
}
