// Package outside says who, besides the agent, stopped a container or a sandbox of a pod.
package outside

import "fmt"

// Reason is that of the event about a Stop; a kubelet has no such event.
const Reason = "StoppedOutside"

// Stop is a request of another process to the CRI server that stops or removes what runs.
type Stop struct {
	// Labels and Annotations are those of the sandbox. Container is the name of the container that
	// is stopped, "" for all of the sandbox.
	Labels, Annotations map[string]string
	Container           string
	// Known says that the process is known: its number, 0 in another PID namespace, its user, and
	// what it calls itself, "" if that is not known.
	Known bool
	PID   int32
	UID   uint32
	Name  string
}

// longestName bounds the name of a process in a message, in bytes.
const longestName = 32

// Message is that of the event. The name of the process is quoted: it may be any bytes.
func (s Stop) Message() string {
	what := "Pod sandbox"
	if s.Container != "" {
		what = "Container " + s.Container
	}
	who := "a process that is not known"
	switch {
	case s.Known && s.PID <= 0:
		who = fmt.Sprintf("a process of another PID namespace, user %d", s.UID)
	case s.Known && s.Name == "":
		who = fmt.Sprintf("process %d, user %d", s.PID, s.UID)
	case s.Known:
		who = fmt.Sprintf("process %d (%q), user %d", s.PID, s.Name[:min(len(s.Name), longestName)], s.UID)
	}
	return what + " is being stopped through the CRI by " + who + ", not by the agent"
}
