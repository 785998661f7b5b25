package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/probes"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// maxHookOutput is how much of what a hook printed is in its error (HK13), in bytes.
const maxHookOutput = 10 << 10

// hook runs the hook of an action to its end.
func (w *Worker) hook(ctx context.Context, j Job) error {
	c, _ := Container(j.Pod, j.Container)
	if c == nil || c.Lifecycle == nil {
		return nil
	}
	handler := c.Lifecycle.PostStart
	if j.Verb == cycle.RunPreStop {
		handler = c.Lifecycle.PreStop
	}
	if handler == nil {
		return nil
	}
	if !j.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(j.Deadline.Sub(w.o.Now()), 0))
		defer cancel()
	}
	if err := w.handle(ctx, j, c, handler); err != nil {
		return fmt.Errorf("%s for Container %q in Pod \"%s_%s(%s)\" failed - error: %w", hookText(handler), c.Name, j.Pod.Name, j.Pod.Namespace, j.Pod.UID, err)
	}
	return nil
}

// hookText is how a kubelet's messages call a hook.
func hookText(h *corev1.LifecycleHandler) string {
	switch {
	case h.Exec != nil:
		return fmt.Sprintf("Exec lifecycle hook (%v)", h.Exec.Command)
	case h.HTTPGet != nil:
		return fmt.Sprintf("HTTP lifecycle hook (%s)", h.HTTPGet.Path)
	case h.Sleep != nil:
		return fmt.Sprintf("Sleep lifecycle hook (%d)", h.Sleep.Seconds)
	}
	return "lifecycle hook"
}

func (w *Worker) handle(ctx context.Context, j Job, c *corev1.Container, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		return w.hookExec(ctx, j, h.Exec.Command)
	case h.HTTPGet != nil:
		warning, err := probes.HookHTTP(ctx, h.HTTPGet, c, PodIP(j.Input), w.o.UserAgent)
		if warning != "" {
			w.o.Tell(j.Pod, c.Name, corev1.EventTypeWarning, "LifecycleHTTPFallback", warning)
		}
		return err
	case h.Sleep != nil:
		return probes.HookSleep(ctx, h.Sleep, j.Ended)
	}
	return fmt.Errorf("the handler is not exec, httpGet or sleep: %w", errdefs.ErrInvalidArgument)
}

// hookExec runs a command in the container. Its output is in no log, but in the error.
func (w *Worker) hookExec(ctx context.Context, j Job, command []string) error {
	var limit time.Duration
	if deadline, bounded := ctx.Deadline(); bounded {
		limit = max(time.Until(deadline), time.Second)
	}
	stdout, stderr, code, err := w.Exec(ctx, j.ID, command, limit)
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: ", strings.Join(command, " "), code)
	}
	if err != nil {
		return fmt.Errorf("%w, message: %q", err, clip(string(append(stdout, stderr...)), maxHookOutput))
	}
	return nil
}

// Exec runs a command in a container. The limit, if it is not 0, is rounded up to seconds.
func (w *Worker) Exec(ctx context.Context, id string, command []string, limit time.Duration) (stdout, stderr []byte, code int32, err error) {
	resp, err := w.o.CRI.ExecSync(ctx, &runtime.ExecSyncRequest{
		ContainerId: id, Cmd: command, Timeout: int64((limit + time.Second - 1) / time.Second),
	})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return resp.GetStdout(), resp.GetStderr(), resp.GetExitCode(), err
}

// PodIP is the address at which the pod's containers are reached.
func PodIP(in translate.Input) string {
	if in.Pod.Spec.HostNetwork && len(in.Node.IPs) > 0 {
		return in.Node.IPs[0]
	}
	if len(in.IPs) > 0 {
		return in.IPs[0]
	}
	return ""
}

// clip cuts a text to a length in bytes, at the border of a character.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
