package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/suites"
)

// offConfig gives pods of lower priority 15 s of a shutdown, and critical ones 5.
const offConfig = `
[pods]
manifests = ["/etc/sunaba/manifests"]
shutdown_grace = "20s"
shutdown_grace_critical = "5s"
reserved_memory = "128Mi"
crash_loop_max = "2s"
[pods.eviction]
nodefs_available = "0%"
imagefs_available = "0%"
[handlers.runc]
type = "oci"
binary = "runc"
default = true
[handlers.wasm]
type = "wasm"
`

// offPods: one that needs longer to end than logind waits by default, one that does not end by
// itself, a critical one, one of each end, a guest. What they note are lines of the journal: name,
// what, when in seconds since the boot.
const offPods = `
apiVersion: v1
kind: ConfigMap
metadata: {name: programs}
data:
  note.sh: 'note() { read now rest </proc/uptime; echo "$1 $now" >>/journal/$NAME; sync; }'
---
apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  terminationGracePeriodSeconds: 60
  volumes: $VOLUMES
  containers:
    - name: app
      image: $BUSYBOX
      command: [sh, -c, ". /p/note.sh; echo start >>/kept/starts; note begin; trap 'note term; sleep 7; note done; exit 0' TERM; while :; do usleep 200000; done"]
      env: [{name: NAME, value: polite}]
      volumeMounts: $MOUNTS
---
apiVersion: v1
kind: Pod
metadata: {name: deaf}
spec:
  terminationGracePeriodSeconds: 2
  volumes: $VOLUMES
  containers:
    - name: app
      image: $BUSYBOX
      command: [sh, -c, ". /p/note.sh; note begin; trap 'note term' TERM; while :; do usleep 200000; done"]
      env: [{name: NAME, value: deaf}]
      volumeMounts: $MOUNTS
---
apiVersion: v1
kind: Pod
metadata: {name: last}
spec:
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 3
  volumes: $VOLUMES
  containers:
    - name: app
      image: $BUSYBOX
      command: [sh, -c, ". /p/note.sh; note begin; trap 'note term; exit 0' TERM; while :; do usleep 200000; done"]
      env: [{name: NAME, value: last}]
      volumeMounts: $MOUNTS
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: $BUSYBOX, command: [sleep, "100000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: over}
spec:
  restartPolicy: Never
  containers: [{name: app, image: $BUSYBOX, command: ["true"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: guest}
spec:
  runtimeClassName: wasm
  terminationGracePeriodSeconds: 1
  containers: [{name: app, image: $GUEST, args: [tick, "20000"]}]
`

// latePod is one whose start the power is cut in.
const latePod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: kept, emptyDir: {}}]
  initContainers: [{name: first, image: $BUSYBOX, command: [sh, -c, "echo made >/kept/made"], volumeMounts: [{name: kept, mountPath: /kept}]}]
  containers:
    - {name: app, image: $BUSYBOX, command: [sh, -c, "[ -s /kept/made ] && exec sleep 100000"], volumeMounts: [{name: kept, mountPath: /kept}]}
`

// The machine is switched off and on, with systemd, logind and the unit that is installed: in order,
// which gives pods their time, and by cuts of its power at rest, while pods start, and while the
// server starts after a boot. Each boot runs this test from its beginning (SD1 to SD3, SD5, SD7,
// RB2, RB3, RE7).
func TestOff(t *testing.T) {
	m := turnOn(t)
	switch m.Boot {
	case 0:
		m.install()
		m.start()
		m.await("all pods are as they are to be", m.settled)
		m.unit()
		m.reserved()
		m.shutdown()
	case 1:
		m.ended()
		m.start()
		m.await("all pods are as they are to be", m.settled)
		m.judge(true)
		m.rebooted()
		m.cut()
	case 2:
		m.start()
		m.await("all pods are as they are to be", m.settled)
		m.judge(true)
		for i := range 3 {
			m.write(fmt.Sprintf("late%d", i), fmt.Sprintf(latePod, fmt.Sprintf("late%d", i)))
		}
		time.Sleep(m.moment(3 * time.Second))
		m.cut()
	case 3:
		run(t, "systemctl", "start", "--no-block", "sunaba")
		time.Sleep(m.moment(5 * time.Second))
		m.cut()
	default:
		m.start()
		m.await("all pods are as they are to be", func() string {
			for i := range 3 {
				name := fmt.Sprintf("late%d", i)
				if !slices.ContainsFunc(m.pods()[name].Status.ContainerStatuses, runs) {
					return name + " does not run"
				}
			}
			return m.settled()
		})
		m.judge(false)
		m.end()
	}
}

// saved is what a boot tells the next one.
type saved struct {
	Boot           int
	Busybox, Guest string
	Pods           map[string]corev1.Pod // as they were shown last
	Settled        []string              // names of those that were as they were to be
	Seed           uint64
}

// machine is one of several boots.
type machine struct {
	saved
	t *testing.T
}

// disk is where what outlives the machine is mounted, journal what containers note there.
const disk, journal, savedFile = "/srv/disk", "/srv/disk/journal", "/srv/disk/saved.json"

// kept are the folders of a machine that its disk has.
var kept = map[string]string{"root": "/var/lib/sunaba", "etc": "/etc/sunaba", "logs": "/var/log/pods"}

// turnOn mounts the disk and makes the machine what it was before the boot.
func turnOn(t *testing.T) *machine {
	m := &machine{t: t}
	check(t, os.MkdirAll(disk, 0o755))
	if _, err := try("mount", suites.Disk, disk); err != nil {
		run(t, "mkfs.ext4", "-q", suites.Disk)
		run(t, "mount", suites.Disk, disk)
	}
	for from, to := range kept {
		check(t, os.MkdirAll(filepath.Join(disk, from), 0o755))
		check(t, os.MkdirAll(to, 0o755))
		run(t, "mount", "--bind", filepath.Join(disk, from), to)
	}
	if data, err := os.ReadFile(savedFile); err == nil {
		check(t, json.Unmarshal(data, &m.saved))
		m.place()
	}
	fmt.Printf("boot %d\n", m.Boot)
	return m
}

// place writes what is on no disk of its own here: binaries and the unit, as it is installed.
func (m *machine) place() {
	for _, name := range []string{"sunaba", "containerd-shim-sunaba-v1"} {
		run(m.t, "cp", filepath.Join(disk, "bin", name), bin)
	}
	unit, err := os.ReadFile("../../packaging/sunaba.service")
	check(m.t, err)
	check(m.t, os.WriteFile("/etc/systemd/system/sunaba.service", []byte(strings.ReplaceAll(string(unit), "@BINDIR@", bin)), 0o644))
	run(m.t, "systemctl", "daemon-reload")
}

// install does what is done once.
func (m *machine) install() {
	m.Seed = uint64(time.Now().UnixNano())
	m.Busybox, m.Guest = build(m.t, filepath.Join(disk, "bin"))
	check(m.t, os.MkdirAll("/etc/sunaba/manifests", 0o755))
	check(m.t, os.MkdirAll(journal, 0o777))
	check(m.t, os.WriteFile("/etc/sunaba/config.toml", []byte(offConfig), 0o600))
	m.write("pods", offPods)
	m.place()
}

func (m *machine) write(name, text string) {
	text = strings.NewReplacer(
		"$VOLUMES", "[{name: programs, configMap: {name: programs}}, {name: journal, hostPath: {path: "+journal+"}}, {name: kept, emptyDir: {}}]",
		"$MOUNTS", "[{name: programs, mountPath: /p}, {name: journal, mountPath: /journal}, {name: kept, mountPath: /kept}]",
		"$BUSYBOX", m.Busybox, "$GUEST", m.Guest).Replace(text)
	check(m.t, os.WriteFile(filepath.Join("/etc/sunaba/manifests", name+".yaml"), []byte(text), 0o600))
	unix.Sync() // or a cut takes it
}

// moment is a time within most, of the seed and the boot.
func (m *machine) moment(most time.Duration) time.Duration {
	fmt.Printf("boot %d, seed %d\n", m.Boot, m.Seed)
	return time.Duration(rand.New(rand.NewPCG(m.Seed, uint64(m.Boot))).Int64N(int64(most)))
}

// start starts the server's unit, which is started when the commands are answered.
func (m *machine) start() {
	m.t.Helper()
	if _, err := try("systemctl", "start", "sunaba"); err != nil {
		m.t.Fatalf("%v\n%s", err, journald("sunaba"))
	}
	run(m.t, "sunaba", "get", "manifests")
}

// pods are all, as commands show them.
func (m *machine) pods() map[string]corev1.Pod {
	var list struct{ Items []corev1.Pod }
	out, err := try("sunaba", "get", "pods", "-A", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	if err != nil {
		fmt.Println(err)
	}
	all := map[string]corev1.Pod{}
	for _, p := range list.Items {
		all[p.Name] = p
	}
	return all
}

func runs(s corev1.ContainerStatus) bool { return s.State.Running != nil }

// settled is what is not yet as it is to be, "" for nothing.
func (m *machine) settled() string {
	all := m.pods()
	for _, name := range []string{"polite", "deaf", "last", "guest", "never"} {
		p := all[name]
		if over := name == "never" && p.Status.Phase == corev1.PodFailed; !over && !slices.ContainsFunc(p.Status.ContainerStatuses, runs) {
			return name + " does not run"
		}
	}
	if all["over"].Status.Phase != corev1.PodSucceeded {
		return "over is " + string(all["over"].Status.Phase)
	}
	return ""
}

// await waits until there is nothing that waits says.
func (m *machine) await(what string, waits func() string) {
	m.t.Helper()
	var last string
	if !node.Within(node.Patience, func() bool { last = waits(); return last == "" }) {
		out, _ := try("sunaba", "describe", "pods")
		m.t.Fatalf("%s: %s\n%s\n%s", what, last, out, journald("sunaba"))
	}
}

// off saves what the next boot is to know, and waits for the end of this one, which how brings.
func (m *machine) off(how func()) {
	m.t.Helper()
	if m.t.Failed() {
		m.t.FailNow()
	}
	m.Boot++
	m.Pods = m.pods()
	m.Settled = nil
	for name, p := range m.Pods {
		if p.Status.Phase != corev1.PodPending && !strings.HasPrefix(name, "late") {
			m.Settled = append(m.Settled, name)
		}
	}
	data, err := json.Marshal(m.saved)
	check(m.t, err)
	file, err := os.Create(savedFile)
	check(m.t, err)
	_, err = file.Write(data)
	check(m.t, err)
	check(m.t, file.Sync())
	how()
	time.Sleep(2 * time.Minute)
	m.t.Fatal("the machine is still on")
}

// cut has the power cut.
func (m *machine) cut() {
	m.off(func() { check(m.t, os.WriteFile(filepath.Join(share, suites.CutFile), nil, 0o600)) })
}

// shutdown has the machine start again in order.
func (m *machine) shutdown() {
	m.off(func() { run(m.t, "systemctl", "reboot") })
}

// property is one of a unit.
func property(t *testing.T, unit, name string) string {
	t.Helper()
	return run(t, "systemctl", "show", "--value", "-p", name, unit)
}

// containers are the ids of running containers, by pod and name.
func (m *machine) containers() map[string]string {
	ids := map[string]string{}
	for _, p := range m.pods() {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if runs(s) {
				ids[p.Name+"/"+s.Name] = s.ContainerID
			}
		}
	}
	return ids
}

// unit tries what systemd does with the server's unit while pods run: they run on.
func (m *machine) unit() {
	before := m.containers()
	for what, args := range map[string][]string{
		"reload": {"reload", "sunaba"}, "restart": {"restart", "sunaba"}, "crash": {"kill", "--kill-who=main", "--signal=KILL", "sunaba"},
	} {
		pid := property(m.t, "sunaba", "MainPID")
		run(m.t, "systemctl", args...)
		m.await("the server after its "+what, func() string {
			// In one answer, for the process may end between two. All pods except over are ready.
			now := run(m.t, "systemctl", "show", "-p", "MainPID", "-p", "ActiveState", "-p", "StatusText", "sunaba")
			lines := strings.Split(now, "\n")
			if !slices.Contains(lines, "ActiveState=active") || !slices.Contains(lines, "StatusText=6 pods, 5 ready") ||
				what != "reload" && slices.Contains(lines, "MainPID="+pid) {
				return now
			}
			return ""
		})
		if now := m.containers(); fmt.Sprint(now) != fmt.Sprint(before) {
			m.t.Errorf("%s: containers %v, before %v", what, now, before)
		}
	}
}

// reserved looks at the limit of all pods together, and at what logind was told.
func (m *machine) reserved() {
	want, err := resource.ParseQuantity(run(m.t, "sunaba", "get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.memory}"))
	check(m.t, err)
	group, err := os.ReadFile("/sys/fs/cgroup/sunaba.slice/memory.max")
	check(m.t, err)
	unit := property(m.t, "sunaba.slice", "MemoryMax")
	if got := strings.TrimSpace(string(group)); got != fmt.Sprint(want.Value()) || unit != got {
		m.t.Errorf("pods may use %s bytes, and %s by systemd; want %d", got, unit, want.Value())
	}
	delay := run(m.t, "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "InhibitDelayMaxUSec")
	if delay != "t 20000000" {
		m.t.Errorf("logind lets shutdowns be held back for %s", delay)
	}
	if list := run(m.t, "systemd-inhibit", "--list", "--no-legend", "--no-pager"); !strings.Contains(list, "Pods need time to stop") {
		m.t.Errorf("nothing holds shutdowns back: %s", list)
	}
}

// ended looks at what pods have noted of the shutdown, before they run again: all had their time,
// and the critical one was last.
func (m *machine) ended() {
	at := map[string]float64{}
	for _, name := range []string{"polite", "deaf", "last"} {
		data, err := os.ReadFile(filepath.Join(journal, name))
		check(m.t, err)
		for line := range strings.Lines(string(data)) {
			var did string
			var when float64
			if _, err := fmt.Sscanf(line, "%s %f\n", &did, &when); err != nil {
				m.t.Fatalf("line %q of %s: %v", line, name, err)
			}
			if _, twice := at[name+" "+did]; twice {
				m.t.Errorf("%s did %s twice", name, did)
			}
			at[name+" "+did] = when
		}
	}
	fmt.Println("the shutdown:", at)
	for _, did := range []string{"polite term", "polite done", "deaf term", "last term"} {
		if at[did] == 0 {
			m.t.Errorf("never: %s", did)
		}
	}
	if at["last term"] < at["polite done"] || at["last term"] < at["deaf term"] {
		m.t.Errorf("the critical pod was stopped before others: %v", at)
	}
}
