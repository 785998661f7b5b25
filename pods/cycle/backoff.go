package cycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The restart delays (BO1, BO4, BO7).
const (
	firstDelay   = 10 * time.Second
	longestDelay = 300 * time.Second
	resetAfter   = 600 * time.Second
)

// delays are the first and the longest delay of the settings.
func (s *Settings) delays() (first, longest time.Duration) {
	longest = s.CrashLoopMax
	if longest <= 0 || longest > longestDelay {
		longest = longestDelay
	}
	return min(firstDelay, longest), longest
}

// backOffEntry is the back-off of a container after its last run, with the end of that run; live
// says that it is still in force (BO4, BO5).
func backOffEntry(n *step, it *item) (b *BackOff, live bool) {
	b = &it.c.BackOff
	if b.Ended.IsZero() || b.Of != it.c.Attempt {
		b.Of, b.Ended = it.c.Attempt, n.now
		if it.obs != nil && !it.obs.Finished.IsZero() && it.obs.Finished.Before(n.now) {
			b.Ended = n.now.Add(it.obs.Finished.Sub(n.now)) // with n.now's monotonic time
		} else if f := it.c.Gone.FinishedAt; it.obs == nil && !f.IsZero() {
			if latest := f.Add(time.Second); latest.Before(n.now) { // it is kept in whole seconds
				b.Ended = latest
			}
		}
		n.dirty()
	}
	return b, b.Delay > 0 && b.Image == it.spec.Image && b.Ended.Sub(b.Since) <= resetAfter
}

// waitsForBackOff says that the delay before the next start of a container is not over (BO1, BO2,
// BO6).
func waitsForBackOff(n *step, it *item) bool {
	b, live := backOffEntry(n, it)
	_, longest := n.s.delays()
	delay := min(b.Delay, longest)
	due := b.Ended.Add(delay)
	if !live || !n.now.Before(due) {
		return false
	}
	text := fmt.Sprintf("restart of %s (back-off %s)", it.name, delay)
	n.wake(due, text)
	n.once("backoff/"+it.name, it.c.ID, corev1.EventTypeWarning, "BackOff", it.name,
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", it.name, podText(n)))
	return true
}

// nextDelay makes or doubles the entry, at the start after a run.
func nextDelay(n *step, it *item) {
	first, longest := n.s.delays()
	b, live := backOffEntry(n, it)
	if live {
		b.Delay = min(2*b.Delay, longest)
	} else {
		b.Delay = first
	}
	b.Since, b.Image = n.now, it.spec.Image
}

// crashLoop is the waiting state of a container in its delay, nil if it does not wait.
func crashLoop(n *step, it *item) *corev1.ContainerStateWaiting {
	if it.exited() == nil || it.c.ID == "" || !isCrash(n, it) || n.ending() || !startWanted(n, it) || it.kind == ephemeral {
		return nil
	}
	b, live := backOffEntry(n, it)
	_, longest := n.s.delays()
	delay := min(b.Delay, longest)
	if !live || !n.now.Before(b.Ended.Add(delay)) {
		return nil
	}
	return &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, it.name, podText(n))}
}

// podText is a pod as a kubelet's messages name it: NAME_NAMESPACE(UID).
func podText(n *step) string {
	p := n.r.Pod
	return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID)
}
