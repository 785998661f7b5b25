package containerd

import (
	corev1 "k8s.io/api/core/v1"
)

// manifestTexts are the pods of TestManifests, one a file. SEEN is a folder of the machine.
var manifestTexts = map[string]string{
	"job": `
apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{name: work, emptyDir: {}}]
  initContainers:
    - {name: one, image: IMAGE, command: [sh, -c, "echo 1 >/work/text"], volumeMounts: [{name: work, mountPath: /work}]}
    - {name: two, image: IMAGE, command: [sh, -c, "echo 2 >>/work/text"], volumeMounts: [{name: work, mountPath: /work}]}
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, "cat /work/text >/dev/termination-log"]
      volumeMounts: [{name: work, mountPath: /work}]
`,
	"sidecar": `
apiVersion: v1
kind: Pod
metadata: {name: sidecar}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  volumes: [{name: work, emptyDir: {medium: Memory}}]
  initContainers:
    - name: side
      image: IMAGE
      restartPolicy: Always
      command: [sh, -c, "trap 'exit 0' TERM; sleep 1; touch /work/up; while true; do sleep 0.1; done"]
      startupProbe: {exec: {command: [test, -f, /work/up]}, periodSeconds: 1, timeoutSeconds: 20}
      volumeMounts: [{name: work, mountPath: /work}]
  containers:
    - {name: app, image: IMAGE, command: [test, -f, /work/up], volumeMounts: [{name: work, mountPath: /work}]}
`,
	"web": `
apiVersion: v1
kind: ConfigMap
metadata: {name: page}
data: {page: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: www, configMap: {name: page}}, {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]
  containers:
    - name: server
      image: IMAGE
      command: [httpd, -f, -p, "8080", -h, /www]
      ports: [{name: http, containerPort: 8080}]
      readinessProbe: {httpGet: {path: /page, port: http}, periodSeconds: 1}
      livenessProbe: {tcpSocket: {port: http}, periodSeconds: 1}
      resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 100m, memory: 32Mi}}
      env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
      volumeMounts: [{name: www, mountPath: /www}, {name: info, mountPath: /info}]
`,
	"live": `
apiVersion: v1
kind: Pod
metadata: {name: live}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, "touch /tmp/well; sleep 2; rm /tmp/well; sleep 1000"]
      livenessProbe: {exec: {command: [test, -f, /tmp/well]}, periodSeconds: 1, failureThreshold: 1, initialDelaySeconds: 1, timeoutSeconds: 20}
`,
	"crash": `
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  restartPolicy: OnFailure
  volumes: [{name: seen, hostPath: {path: SEEN}}]
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, "echo run >>/seen/crash; [ $(wc -l </seen/crash) = 3 ] || exit 7"]
      volumeMounts: [{name: seen, mountPath: /seen}]
`,
	"kept": `
apiVersion: v1
kind: Pod
metadata: {name: kept}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: seen, hostPath: {path: SEEN}}]
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, "while [ ! -f /seen/kept.end ]; do sleep 0.1; done; rm /seen/kept.end; exit 5"]
      volumeMounts: [{name: seen, mountPath: /seen}]
`,
	"hooks": `
apiVersion: v1
kind: Pod
metadata: {name: hooks}
spec:
  terminationGracePeriodSeconds: 20
  volumes: [{name: seen, hostPath: {path: SEEN}}]
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, "trap 'echo term >>/seen/hooks; exit 0' TERM; while true; do sleep 0.1; done"]
      volumeMounts: [{name: seen, mountPath: /seen}]
      lifecycle:
        postStart: {exec: {command: [sh, -c, "echo started >>/seen/hooks"]}}
        preStop: {exec: {command: [sh, -c, "echo stopping >>/seen/hooks"]}}
`,
	"secret": `
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {key: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: secret}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  volumes: [{name: key, secret: {secretName: key, defaultMode: 0440}}]
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, '[ "$(cat /key/key)" = s3cret -a "$KEY" = s3cret -a "$(id -u)" = 1000 ] && touch /tmp/right; sleep 1000']
      env: [{name: KEY, valueFrom: {secretKeyRef: {name: key, key: key}}}]
      readinessProbe: {exec: {command: [test, -f, /tmp/right]}, periodSeconds: 1}
      volumeMounts: [{name: key, mountPath: /key}]
`,
	"failed": `
apiVersion: v1
kind: Pod
metadata: {name: failed}
spec:
  restartPolicy: Never
  containers: [{name: app, image: IMAGE, command: [sh, -c, "echo no luck >&2; exit 3"], terminationMessagePolicy: FallbackToLogsOnError}]
`,
	"deadline": `
apiVersion: v1
kind: Pod
metadata: {name: deadline}
spec:
  activeDeadlineSeconds: 2
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: IMAGE, command: [sleep, "1000"]}]
`,
	"host": `
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: IMAGE, command: [sleep, "1000"], securityContext: {readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}}]
`,
	"memory": `
apiVersion: v1
kind: Pod
metadata: {name: memory}
spec:
  restartPolicy: Never
  containers: [{name: app, image: IMAGE, command: [sh, -c, "x=a; while true; do x=$$x$$x; done"], resources: {limits: {memory: 64Mi}}}]
`,
	"cut": `
apiVersion: v1
kind: Pod
metadata: {name: cut}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: seen, hostPath: {path: SEEN}}]
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, "echo started >>/seen/$(hostname); exec sleep 1000"]
      volumeMounts: [{name: seen, mountPath: /seen}]
`,
	"missing": `
apiVersion: v1
kind: Pod
metadata: {name: missing}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: "IMAGE-is-not-there"}]
`,
	"guest": `
apiVersion: v1
kind: Pod
metadata: {name: guest}
spec:
  restartPolicy: Never
  runtimeClassName: sunaba-wasm
  containers: [{name: app, image: GUEST, command: [/guest.wasm, exit, "5"]}]
`,
}

// manifestEnds is what becomes of them.
var manifestEnds = map[string]struct {
	what string
	is   func(p *corev1.Pod) bool
}{
	"job": {"Succeeded with what its init containers wrote", func(p *corev1.Pod) bool {
		t := of(p, "app").State.Terminated
		return p.Status.Phase == corev1.PodSucceeded && t != nil && t.Message == "1\n2\n" && of(p, "one").State.Terminated.Reason == "Completed"
	}},
	"sidecar": {"Succeeded, its sidecar ended in order", func(p *corev1.Pod) bool {
		t := of(p, "side").State.Terminated
		return p.Status.Phase == corev1.PodSucceeded && t != nil && t.ExitCode == 0
	}},
	"web": {"Ready, with an address", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" && of(p, "server").RestartCount == 0
	}},
	"live": {"restarted by its liveness probe", func(p *corev1.Pod) bool {
		c := of(p, "app")
		return c.RestartCount >= 1 && c.LastTerminationState.Terminated != nil && c.LastTerminationState.Terminated.ExitCode == 137
	}},
	"crash": {"Succeeded in its third run", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded && of(p, "app").RestartCount == 2 && of(p, "app").LastTerminationState.Terminated.ExitCode == 7
	}},
	"kept":   {"Ready", ready},
	"hooks":  {"Ready", ready},
	"secret": {"Ready, which its Secret makes it", ready},
	"failed": {"Failed, with the end of its log", func(p *corev1.Pod) bool {
		t := of(p, "app").State.Terminated
		return p.Status.Phase == corev1.PodFailed && t != nil && t.ExitCode == 3 && t.Reason == "Error" && t.Message == "no luck\n"
	}},
	"deadline": {"Failed by its deadline", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DeadlineExceeded"
	}},
	"host": {"Ready, with the node's address", func(p *corev1.Pod) bool { return ready(p) && p.Status.PodIP == p.Status.HostIP }},
	"memory": {"Failed for want of memory", func(p *corev1.Pod) bool {
		t := of(p, "app").State.Terminated
		return p.Status.Phase == corev1.PodFailed && t != nil && t.Reason == "OOMKilled" && t.ExitCode == 137
	}},
	"missing": {"waiting for its image", func(p *corev1.Pod) bool {
		w := of(p, "app").State.Waiting
		return p.Status.Phase == corev1.PodPending && w != nil && w.Reason == "ImagePullBackOff"
	}},
	"guest": {"Failed with its guest's code", func(p *corev1.Pod) bool {
		t := of(p, "app").State.Terminated
		return p.Status.Phase == corev1.PodFailed && t != nil && t.ExitCode == 5
	}},
}
