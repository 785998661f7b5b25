package main

// named are the differences that any manifest may show: keys, and why. A row is one of the table
// "What differs from a kubelet" in docs/pods.md; inner differences have no effect that a pod or its
// author sees.
var named = []struct{ keys, row string }{
	{`metadata\.generation|status\.observedGeneration|status\.conditions\[\w+\]\.observedGeneration`, rowServer},
	{`spec\.(serviceAccount|serviceAccountName|preemptionPolicy|priority)|status\.hostIPs?(\[0\]\.ip)?|event Normal Scheduled .*`, rowServer},
	{`spec\.tolerations(\[.*\].*|#)`, "a toleration of every `NoExecute` taint"},
	{`status\.\w+ontainerStatuses\[.+\]\.stopSignal`, "`stopSignal` in the status of containers"},
	{`sandbox\.linux\.cgroupParent`, "cgroups of QoS classes"},
	{`(metadata|sandbox|container\.[^.]+)\.annotations\.(io\.sunaba\..+|kubernetes\.io/config\.hash)`, innerMark},
	{`container\.[^.]+\.annotations\.io\.kubernetes\.container\.hash`, innerMark},
	{`container\.[^.]+\.mounts\[.+\]\.selinuxRelabel`, inner + "a label where SELinux is off"},
	{`container\.[^.]+\.mounts(#|\[/etc/hosts\]\..*)`, inner + "/etc/hosts is the server's unless the pod adds names; what is in it is compared"},
	{`container\.[^.]+\.linux\.resources\.hugepageLimits.*`, inner + "limits of huge pages are sent where a controller keeps them"},
	{`container\.[^.]+\.mounts\[.+\]\.image\.annotations\..+`, inner + "annotations of the Pod that a kubelet sends with an image"},
	{`event Warning Unhealthy .*(connection refused|connection reset by peer|EOF|failed to connect service .* within).*`, "the first probe of a container"},
	{`event Warning Unhealthy .*errored and resulted in unknown state.*`, inner + "a probe that is in progress when the container ends"},
	{`(sandbox|container\.[^.]+)\.linux\.securityContext\.namespaceOptions\.usernsOptions\.mode`, inner + "NODE is what no mode means"},
}

const (
	inner     = "inner: "
	innerMark = inner + "what tells the managers' own sandboxes and versions apart"
	rowServer = "what an API server adds to a Pod"
)
