// Package lastwords reads what containers said at their end.
package lastwords

import (
	"errors"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/volumes"
)

// Volumes know where termination messages are: a *volumes.Manager.
type Volumes interface {
	TerminationLog(uid, container string, attempt uint32) (string, error)
}

// End is the end of a container.
type End struct {
	Attempt  uint32
	ExitCode int32
	Log      string // "" for none that may be read
}

// Read reads the message that a container left at its terminationMessagePath, or, as its
// terminationMessagePolicy says, the end of its log (DL4, DL5). A file that is not there is no error.
func Read(v Volumes, pod *corev1.Pod, c *corev1.Container, e End) (string, error) {
	var failed error
	if c.TerminationMessagePath != "" {
		path, err := v.TerminationLog(string(pod.UID), c.Name, e.Attempt)
		var text string
		if err == nil {
			text, err = volumes.ReadTermination(path)
		}
		if text != "" {
			return text, nil
		}
		failed = unlessGone(err)
	}
	if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError || e.ExitCode == 0 || e.Log == "" {
		return "", failed
	}
	text, err := volumes.ReadLogEnd(e.Log)
	return text, errors.Join(failed, unlessGone(err))
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
