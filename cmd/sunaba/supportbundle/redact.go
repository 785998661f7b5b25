package supportbundle

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// removed stands in the place of what is not shown.
const removed = "(removed)"

// maxDepth is how deep objects and lists stand in each other in what is shown.
const maxDepth = 64

// recordKeys are the keys of records and manifests whose values are shown, and below which keys are
// looked at. What is below another key is removed, as are texts that do not look like a name, a
// path, an amount or a time.
var recordKeys = words(`
	version record id phase createdAt bootID config handler handlerName handlerType binary shimScope cgroupParent cgroupOwned
	network up ips interface processLabel restoring overhead resources wanted sandboxID imageID imageName imageRef imagePlatform
	stopSignal logPath rootFS snapshotKey cgroupsPath imageVolumes user uid gid groups fromCheckpoint pid begunAt startedAt
	finishedAt exitCode reason stopSent

	metadata name namespace attempt hostname logDirectory dnsConfig servers searches portMappings protocol containerPort hostPort
	hostIp linux securityContext namespaceOptions ipc targetId seccomp profileType apparmor localhostRef privileged readonlyRootfs
	noNewPrivs capabilities addCapabilities dropCapabilities addAmbientCapabilities supplementalGroups supplementalGroupsPolicy
	maskedPaths readonlyPaths image userSpecifiedImage runtimeHandler mounts containerPath hostPath readonly propagation
	selinuxRelabel recursiveReadOnly uidMappings gidMappings containerId hostId length devices permissions envs key stdin
	stdinOnce tty memoryLimitInBytes memorySwapLimitInBytes cpuQuota cpuPeriod cpuShares oomScoreAdj cpusetCpus cpusetMems
	hugepageLimits pageSize limit userns mode cgroupParent usernsOptions

	apiVersion kind generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds spec status type items
	containers initContainers ephemeralContainers targetContainerName imagePullPolicy ports hostIP env valueFrom secretKeyRef
	configMapKeyRef fieldRef fieldPath resourceFieldRef resource containerName divisor optional envFrom secretRef configMapRef
	volumeMounts volumeDevices mountPath subPath readOnly mountPropagation recursiveReadOnly devicePath volumes emptyDir medium
	sizeLimit path secret secretName configMap defaultMode downwardAPI projected sources serviceAccountToken expirationSeconds
	persistentVolumeClaim claimName reference pullPolicy limits requests cpu memory ephemeral-storage storage livenessProbe
	readinessProbe startupProbe exec httpGet port scheme tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds
	successThreshold failureThreshold terminationGracePeriodSeconds lifecycle postStart preStop sleep seconds
	terminationMessagePath terminationMessagePolicy resizePolicy resourceName restartPolicy activeDeadlineSeconds dnsPolicy
	serviceAccountName serviceAccount automountServiceAccountToken nodeName hostNetwork hostPID hostIPC hostUsers
	shareProcessNamespace runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation add drop fsGroup
	fsGroupChangePolicy procMount seccompProfile appArmorProfile localhostProfile sysctls imagePullSecrets subdomain
	setHostnameAsFQDN hostAliases ip tolerations operator effect tolerationSeconds schedulerName priorityClassName priority
	nameservers enableServiceLinks preemptionPolicy runtimeClassName os accessModes storageClassName volumeName volumeMode
	podFixed immutable

	file hash size taken folder objects object document line seen defaulted pod source startTime sandboxes initialized asked
	started ready last gone containerID backOff delay since ended of conditions lastProbeTime lastTransitionTime
	observedGeneration manifest evicted resizing at condition deadline deadlineFrom deletion disruption done final grace inForce
	interrupted kill noHook now over pause pending postStart pull purge restart sandbox stopping until userNamespace

	involvedObject firstTimestamp lastTimestamp eventTime count component host reportingComponent reportingInstance
	resourceVersion`)

// hostsKeys are those of a hosts.toml.
var hostsKeys = words("server host capabilities ca client skip_verify override_path dial_timeout")

// named are the keys of objects whose keys somebody chose: objects there are looked at as if their
// keys were known.
var named = words("handlers host containers")

// ownWords are the reasons with which a message is what a container wrote.
var ownWords = words("Completed Error OOMKilled Unknown Unhealthy ProbeWarning FailedPostStartHook FailedPreStopHook")

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// Compiled when they are needed: every start of the program would spend more than a millisecond.
var (
	plain = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9._/:+*%{}\[\]-]{0,512}(@sha256:[0-9a-f]{64})?$`)
	})
	hostRef = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9.:\[\]_-]{1,253}$`) })
)

// redactor removes from documents what may be secret, and remembers it, so that it is removed from
// texts too.
type redactor struct {
	secrets *secrets
	keys    map[string]bool // nil: nothing is shown
	removed int
}

// document returns what is shown of a decoded document.
func (r *redactor) document(doc any) any { return r.value(doc, "", r.keys != nil, 0) }

// value returns what is shown of the value of a key; known says that the key may be looked at.
func (r *redactor) value(v any, key string, known bool, depth int) any {
	known = known && depth <= maxDepth
	var shown any
	switch v := v.(type) {
	case nil, bool:
		return v
	case map[string]any:
		m := map[string]any{}
		for k := range v {
			m[r.key(k)] = r.member(v, k, key, known, depth)
		}
		shown = m
	case []any:
		list := make([]any, len(v))
		for i, one := range v {
			list[i] = r.value(one, "", known, depth+1)
		}
		shown = list
	default: // texts, numbers, and the times of TOML
		return r.scalar(v, known)
	}
	if depth > maxDepth {
		return removed
	}
	return shown
}

// member returns what is shown of a member of the object that parent names. "value" is an object of
// a record, or what an environment variable is set to.
func (r *redactor) member(v map[string]any, k, parent string, known bool, depth int) any {
	switch one := v[k].(type) {
	case map[string]any:
		known = known && (r.keys[k] || k == "value" || named[parent])
	case string:
		reason, _ := v["reason"].(string)
		if known && (k == "message" && !ownWords[reason] || k == "unstartable") {
			cleaned, n := r.secrets.clean(one)
			r.removed += n
			return cleaned
		}
		known = known && r.keys[k]
	default:
		known = known && (r.keys[k] || parent == "mirrors")
	}
	return r.value(v[k], k, known, depth+1)
}

func (r *redactor) key(k string) string {
	if strings.Contains(k, "://") || !plain().MatchString(k) {
		return fmt.Sprint(r.scalar(k, true))
	}
	return k
}

// scalar returns a value that is known and looks harmless, and removes every other.
func (r *redactor) scalar(v any, known bool) any {
	text := fmt.Sprint(v)
	switch {
	case text == "":
		return ""
	case known && strings.Contains(text, "://"):
		return r.url(text)
	case known && plain().MatchString(text):
		r.secrets.show(text)
		return v
	}
	r.secrets.add(text)
	r.removed++
	return removed
}

// url returns scheme and host of a URL.
func (r *redactor) url(text string) string {
	u, err := url.Parse(text)
	if err != nil || !hostRef().MatchString(u.Host) || !plain().MatchString(u.Scheme) {
		r.secrets.add(text)
		r.removed++
		return removed
	}
	short := u.Scheme + "://" + u.Host
	if short == text {
		r.secrets.show(text)
		return text
	}
	r.removed++
	r.secrets.add(text)
	password, _ := u.User.Password()
	for _, part := range []string{u.User.Username(), password, strings.Trim(u.Path, "/"), u.RawQuery, u.Fragment} {
		r.secrets.add(part)
	}
	return short + "/" + removed
}

// encode writes documents, one after the other.
func encode(w io.Writer, docs []any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	for _, d := range docs {
		if err := e.Encode(d); err != nil {
			return fmt.Errorf("encode document: %w", err)
		}
	}
	return nil
}
