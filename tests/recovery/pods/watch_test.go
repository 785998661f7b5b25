package pods

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels that a kubelet gives.
const (
	podName       = "io.kubernetes.pod.name"
	podUID        = "io.kubernetes.pod.uid"
	containerName = "io.kubernetes.container.name"
)

// watch looks at the pods for as long as a life lasts, whenever a daemon answers, and at their
// logs.
type watch struct {
	m    *machine
	stop context.CancelFunc
	over sync.WaitGroup

	mu       sync.Mutex
	wrong    []string
	uids     map[string]string   // of pods
	boxes    map[string][]string // ids of sandboxes, by pod
	attempts map[string]uint32   // by UID and container
	ids      map[string]string   // by UID, container and attempt
	counts   map[string]int32    // restart counts, by UID and container
	logs     map[string]*logFile // by path
}

// logFile is the log of one run.
type logFile struct {
	info fs.FileInfo
	text []byte
	gone bool
}

func newWatch(m *machine) *watch {
	w := &watch{m: m, uids: map[string]string{}, boxes: map[string][]string{}, attempts: map[string]uint32{}, ids: map[string]string{}, counts: map[string]int32{}, logs: map[string]*logFile{}}
	ctx, stop := context.WithCancel(m.ctx)
	w.stop = stop
	w.over.Go(func() {
		for ctx.Err() == nil {
			w.look(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	return w
}

// end ends the watch and returns what was wrong.
func (w *watch) end() []string {
	w.stop()
	w.over.Wait()
	return w.wrong
}

// problem notes what is wrong, once.
func (w *watch) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(w.wrong, text) {
		w.wrong = append(w.wrong, text)
	}
}

func (w *watch) look(ctx context.Context) {
	sandboxes, err := w.m.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	containers, cerr := w.m.ListContainers(ctx, &cri.ListContainersRequest{})
	pods, perr := w.m.list()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.seeSandboxes(sandboxes.GetItems())
	}
	if cerr == nil {
		w.seeContainers(containers.GetContainers())
	}
	for _, p := range pods {
		if perr != nil {
			break
		}
		w.sameUID(p.Name, string(p.UID))
		for _, s := range statuses(p) {
			w.count(string(p.UID), p.Name, s.Name, s.RestartCount)
		}
	}
	w.seeLogs()
}

// sameUID wants one UID of each pod.
func (w *watch) sameUID(pod, uid string) {
	if w.uids[pod] == "" {
		w.uids[pod] = uid
	}
	if w.uids[pod] != uid {
		w.problem("pod %s has UID %s and had %s", pod, uid, w.uids[pod])
	}
}

// count wants restart counts that never fall.
func (w *watch) count(uid, pod, name string, n int32) {
	key := uid + "/" + name
	if n < w.counts[key] {
		w.problem("restart count of %s in %s fell from %d to %d", name, pod, w.counts[key], n)
	}
	w.counts[key] = max(n, w.counts[key])
}

// seeSandboxes wants at most one sandbox of each pod that is ready.
func (w *watch) seeSandboxes(items []*cri.PodSandbox) {
	ready := map[string]string{}
	for _, s := range items {
		pod, id := s.GetLabels()[podName], s.GetId()
		w.sameUID(pod, s.GetLabels()[podUID])
		if !slices.Contains(w.boxes[pod], id) {
			w.boxes[pod] = append(w.boxes[pod], id)
			w.m.Ran(id)
		}
		if s.GetState() != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		if ready[pod] != "" {
			w.problem("pod %s has two sandboxes: %s and %s", pod, ready[pod], id)
		}
		ready[pod] = id
	}
}

// seeContainers wants at most one container of each attempt, one running of each name, and new ones
// of new attempts only.
func (w *watch) seeContainers(items []*cri.Container) {
	running, newest := map[string]string{}, maps.Clone(w.attempts)
	for _, c := range items {
		key := c.GetLabels()[podUID] + "/" + c.GetLabels()[containerName]
		attempt := c.GetMetadata().GetAttempt()
		one := fmt.Sprintf("%s/%d", key, attempt)
		if w.ids[one] == "" {
			w.ids[one] = c.GetId()
			if last, known := w.attempts[key]; known && attempt <= last {
				w.problem("a new container %s is of attempt %d, after %d", key, attempt, last)
			}
			newest[key] = max(newest[key], attempt)
		}
		if w.ids[one] != c.GetId() {
			w.problem("attempt %s is container %s and was %s", one, c.GetId(), w.ids[one])
		}
		if c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if running[key] != "" {
			w.problem("two containers %s run: %s and %s", key, running[key], c.GetId())
		}
		running[key] = c.GetId()
	}
	w.attempts = newest
}

var numbered = regexp.MustCompile(`/\d+\.log$`)

// seeLogs wants logs that only grow, one for each run.
func (w *watch) seeLogs() {
	paths, err := filepath.Glob(filepath.Join(w.m.podLogs(), "*", "*", "*"))
	if err != nil {
		w.problem("list logs: %v", err)
	}
	for path, l := range w.logs {
		l.gone = l.gone || !slices.Contains(paths, path)
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue // it was removed
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		l := w.logs[path]
		switch {
		case !numbered.MatchString(path):
			w.problem("file %s among the logs", path)
		case l == nil:
			w.logs[path] = &logFile{info: info, text: text}
			continue
		case l.gone || !os.SameFile(l.info, info) || !bytes.HasPrefix(text, l.text):
			w.problem("log %s was written over: it was %q and is %q", path, l.text, text)
		}
		if l != nil {
			l.info, l.text = info, text
		}
	}
}

// texts are what the runs of a container have said, by number.
func (w *watch) texts(pod, name string) map[int]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := map[int]string{}
	for path, l := range w.logs {
		var n int
		dir, file := filepath.Split(path)
		if _, err := fmt.Sscanf(file, "%d.log", &n); err != nil || filepath.Base(dir) != name || filepath.Base(filepath.Dir(filepath.Clean(dir))) != "default_"+pod+"_"+w.uids[pod] {
			continue
		}
		said[n] = plain(l.text)
	}
	return said
}

// plain is the text of a CRI log of whole lines, without times and names of streams.
func plain(log []byte) string {
	var text strings.Builder
	for line := range strings.Lines(string(log)) {
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			text.WriteString(f[3])
		}
	}
	return text.String()
}
