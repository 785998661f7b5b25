package podcmd

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// -w prints the table once and then a row for each change, in the same columns.
func TestGetWatch(t *testing.T) {
	n := newNode(t)
	started := func(name, uid string) *corev1.Pod {
		p := pod(name, uid, corev1.ConditionTrue)
		p.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
		return p
	}
	web, more := started("web", "u2"), started("more", "u3") // made once: their times do not change
	n.agent.set(started("feed", "u1"), web)
	var out, errOut buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.runTo(ctx, &out, &errOut, "", "get", "pods", "-w") }()
	lines := func(want ...string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(got) == len(want) {
				for i, w := range want {
					if !regexp.MustCompile("^" + w + "$").MatchString(got[i]) {
						t.Errorf("line %d is %q, want %q", i+1, got[i], w)
					}
				}
				return
			}
			if time.Now().After(end) {
				t.Fatalf("printed %q", got)
			}
		}
	}
	table := []string{"NAME   READY   STATUS +RESTARTS +AGE", "feed   2/2  .*5h", "web    2/2  .*5h"}
	lines(table...)
	feed := started("feed", "u1")
	feed.Status.ContainerStatuses[1].Ready = false
	n.agent.set(feed, web)
	table = append(table, "feed   1/2  .*5h")
	lines(table...)
	if errOut.String() != "" {
		t.Errorf("said %q", errOut.String())
	}
	// A server that is restarted is watched again: what changed meanwhile is told, nothing twice.
	n.close(t)
	n.agent.set(started("feed", "u1"), more)
	n.listen(t)
	table = append(table, "feed   2/2  .*5h", "more   2/2  .*5h", "web    2/2  .*5h")
	lines(table...)
	feed = started("feed", "u1")
	feed.Status.ContainerStatuses[1].Ready = false
	n.agent.set(feed, more)
	lines(append(table, "feed   1/2  .*5h")...)
	cancel()
	if err := <-done; err != nil || strings.Count(errOut.String(), "the server went away") != 1 || strings.Count(errOut.String(), "the server is back\n") != 1 {
		t.Errorf("%v, %q", err, errOut.String())
	}
}

func TestEventsWatch(t *testing.T) {
	n := newNode(t)
	var out, errOut buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.runTo(ctx, &out, &errOut, "", "events", "-w", "--for=pod/web", "-o", "name") }()
	for end := time.Now().Add(time.Minute); out.String() != "event/2\n"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("printed %q", out.String())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
