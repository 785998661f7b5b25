// Package selinux chooses the SELinux labels of pods and containers, and gives files theirs.
//
// Each pod has a level of its own (a pair of categories that no other pod has), which its
// containers share unless they name other options: so no pod can touch what belongs to another.
// Levels are kept in memory by the library, so they are reserved again after a restart.
//
// Where labels are off, by configuration or because the kernel has none, every label is "" and
// nothing is changed.
package selinux

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels hands out labels. A nil one is off.
type Labels struct{ on bool }

func (l *Labels) off() bool { return l == nil || !l.on }

// New returns labels that are on if they are wanted and the kernel has them; if it has not, the
// logger is told.
func New(wanted bool, logger *slog.Logger) *Labels {
	on := wanted && selinux.GetEnabled()
	if wanted && !on {
		logger.Warn("SELinux is configured, but the kernel does not have it: nothing is labelled")
	}
	return &Labels{on: on}
}

// Pod returns the label of a pod's processes, with a level that is now taken.
//
// # Errors
//
// ErrInvalidArgument for options of which the policy cannot make a label.
func (l *Labels) Pod(options *runtime.SELinuxOption) (process string, err error) {
	process, _, err = l.make(words(options))
	return process, err
}

// Container returns the labels of a container's processes and files. One without options has its
// pod's; own says that it has a label of its own, which has to be released.
//
// # Errors
//
// ErrInvalidArgument for options of which the policy cannot make a label.
func (l *Labels) Container(options *runtime.SELinuxOption, pod string) (process, mount string, own bool, err error) {
	if l.off() {
		return "", "", false, nil
	}
	list := words(options)
	if own = len(list) > 0; !own {
		if list, err = selinux.DupSecOpt(pod); err != nil {
			return "", "", false, fmt.Errorf("read SELinux label %q: %w", pod, err)
		}
	}
	process, mount, err = l.make(list)
	return process, mount, own, err
}

func (l *Labels) make(options []string) (process, mount string, err error) {
	if l.off() {
		return "", "", nil
	}
	if process, mount, err = label.InitLabels(options); err != nil {
		return "", "", fmt.Errorf("make SELinux label of %q: %w: %w", options, err, errdefs.ErrInvalidArgument)
	}
	return process, mount, nil
}

// words are options as the library reads them.
func words(o *runtime.SELinuxOption) []string {
	var list []string
	for _, w := range []struct{ name, value string }{
		{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}, {"level", o.GetLevel()},
	} {
		if w.value != "" {
			list = append(list, w.name+":"+w.value)
		}
	}
	return list
}

// Keep takes the level of a label that was given out before a restart.
func (l *Labels) Keep(process string) {
	if !l.off() && process != "" {
		selinux.ReserveLabel(process)
	}
}

// Release frees the level of a label.
func (l *Labels) Release(process string) {
	if !l.off() && process != "" {
		selinux.ReleaseLabel(process)
	}
}

// Relabel gives a file, or a folder with all that is in it, the label of a container's files. A
// file system without labels is left as it is.
func (l *Labels) Relabel(path, mount string) error {
	if l.off() || mount == "" {
		return nil
	}
	if err := label.Relabel(path, mount, false); err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("label %q as %q: %w", path, mount, err)
	}
	return nil
}

// MountOption is the option by which all files of a mount have a label, "" for none.
func MountOption(mount string) string {
	if mount == "" {
		return ""
	}
	return label.FormatMountLabel("", mount)
}
