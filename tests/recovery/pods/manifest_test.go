package pods

import (
	"strings"
)

// config is a node's. Its values: cgroup driver, folder of CNI, folders of manifests and logs.
// backOff is its crash_loop_max.
const config = `
cgroup_driver = %q
[network]
conf_dir = %q
[pods]
crash_loop_max = "1s"
manifests = [%q]
shutdown_grace = "0s"
logs = %q
[handlers.runc]
type = "oci"
binary = "runc"
default = true
[handlers.wasm]
type = "wasm"
`

// manifest is the pods of a life with what they need. What a container notes are lines of the file
// "web" of the journal, which is a folder of the node: its name, its instance, what it did and
// when, in seconds since the boot. An instance is the start of a container's first process, in
// ticks. Who sees that another of its name has begun says so, and who sees that a file of a volume
// is not there.
const manifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: programs}
data:
  version: $VERSION
  note.sh: |
    me=$(cut -d' ' -f22 /proc/1/stat)
    note() { read now rest </proc/uptime; echo "$name $me $1 $now" >>/journal/web; }
    begin() { echo $me >/journal/$name.new; mv /journal/$name.new /journal/$name; note begin; }
    look() {
      [ "$(cat /journal/$name)" = $me ] || note double
      [ "$(cat /secret/token)" = s3cret ] || note lost-secret
      [ -s /programs/note.sh ] || note lost-program
      [ "$name" = prepare ] || [ -s /work/made ] || note lost-work
    }
  prepare.sh: |
    name=prepare; . /programs/note.sh; begin; look; usleep 100000; echo made >/work/made; note end
  side.sh: |
    name=side; . /programs/note.sh; begin
    trap 'note term; exit 0' TERM
    while :; do look; usleep 20000; done
  app.sh: |
    name=app; . /programs/note.sh; begin; look; echo "run $me"
    trap 'note term; exit 0' TERM
    usleep 200000; look; note end; exit 3
  hook.sh: |
    name=side; . /programs/note.sh; usleep 50000; note $1; usleep 100000
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {token: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 20
  volumes:
    - {name: programs, configMap: {name: programs}}
    - {name: secret, secret: {secretName: key}}
    - {name: work, emptyDir: {}}
    - {name: journal, hostPath: {path: $JOURNAL, type: Directory}}
  initContainers:
    - name: prepare
      image: $FIRST
      command: [sh, /programs/prepare.sh]
      volumeMounts: &mounts
        - {name: programs, mountPath: /programs}
        - {name: secret, mountPath: /secret}
        - {name: work, mountPath: /work}
        - {name: journal, mountPath: /journal}
    - name: side
      restartPolicy: Always
      image: $SIDE
      command: [sh, /programs/side.sh]
      resources: {requests: {cpu: 200m}} # or it waits for seconds where one processor is all there is
      volumeMounts: *mounts
      lifecycle:
        postStart: {exec: {command: [sh, /programs/hook.sh, poststart]}}
        preStop: {exec: {command: [sh, /programs/hook.sh, prestop]}}
  containers:
    - name: app
      image: $FIRST
      command: [sh, /programs/app.sh]
      resources: {requests: {cpu: 200m}}
      volumeMounts: *mounts
---
apiVersion: v1
kind: Pod
metadata: {name: guest}
spec:
  runtimeClassName: wasm
  terminationGracePeriodSeconds: 1
  volumes: [{name: secret, secret: {secretName: key}}]
  initContainers:
    - {name: read, image: $GUEST, args: [cat, /secret/token], volumeMounts: [{name: secret, mountPath: /secret}]}
  containers:
    - {name: ticks, image: $GUEST, args: [tick, "20000"]}
`

// manifestOf is the manifest with a journal and the image of the container that is edited.
func manifestOf(journal, version, side string) string {
	return strings.NewReplacer("$JOURNAL", journal, "$VERSION", version, "$SIDE", side, "$FIRST", world.first, "$GUEST", world.guest).Replace(manifest)
}
