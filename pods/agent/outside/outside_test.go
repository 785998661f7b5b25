package outside

import (
	"strings"
	"testing"
)

func TestMessage(t *testing.T) {
	for _, test := range []struct {
		stop Stop
		want string
	}{
		{Stop{Known: true, PID: 4711, Name: "crictl"}, `Pod sandbox is being stopped through the CRI by process 4711 ("crictl"), user 0, not by the agent`},
		{Stop{Container: "app", Known: true, PID: 4711, UID: 7, Name: "crictl"}, `Container app is being stopped through the CRI by process 4711 ("crictl"), user 7, not by the agent`},
		{Stop{Known: true, PID: 4711}, `Pod sandbox is being stopped through the CRI by process 4711, user 0, not by the agent`},
		{Stop{Known: true, UID: 3}, `Pod sandbox is being stopped through the CRI by a process of another PID namespace, user 3, not by the agent`},
		{Stop{PID: 4711, Name: "crictl"}, `Pod sandbox is being stopped through the CRI by a process that is not known, not by the agent`},
		{Stop{Known: true, PID: 1, Name: "\x1b[2J\"), user 0\n\xff"}, `Pod sandbox is being stopped through the CRI by process 1 ("\x1b[2J\"), user 0\n\xff"), user 0, not by the agent`},
	} {
		if got := test.stop.Message(); got != test.want {
			t.Errorf("%+v:\n%s, want\n%s", test.stop, got, test.want)
		}
	}
	if got := (Stop{Known: true, PID: 1, Name: strings.Repeat("\x01", 1000)}).Message(); len(got) > 300 {
		t.Errorf("message of %d bytes", len(got))
	}
}
