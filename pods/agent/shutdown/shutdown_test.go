package shutdown

import (
	"fmt"
	"testing"
	"time"
)

// TestPlan plays shutdowns of 30 s, of which critical pods have 10 s (SD1, SD3, SD9). A pod is over
// so many seconds after its order; a negative number is never.
func TestPlan(t *testing.T) {
	type pod struct {
		name     string
		critical bool
		takes    int
	}
	for name, c := range map[string]struct {
		pods []pod
		want string // "SECOND order GRACE", ...
	}{
		"SD1 others first, then critical ones":   {[]pod{{"a", false, 3}, {"c", true, 2}, {"b", false, 5}}, "0 a 20s, 0 b 20s, 5 c 10s, 7 over"},
		"SD1 a pod that does not end in time":    {[]pod{{"a", false, -1}, {"c", true, 2}}, "0 a 20s, 20 c 10s, 22 over"},
		"SD9 a critical pod that does not end":   {[]pod{{"a", false, 1}, {"c", true, -1}}, "0 a 20s, 1 c 10s, 11 over"},
		"SD1 a group without pods takes no time": {[]pod{{"c", true, 4}}, "0 c 10s, 4 over"},
		"without pods":                           {nil, "0 over"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			plan := Begin(Graces{Total: 30 * time.Second, Critical: 10 * time.Second}, start)
			ends := map[string]time.Time{}
			got := ""
			for second := 0; second < 60; second++ {
				now := start.Add(time.Duration(second) * time.Second)
				for {
					var pods []Pod
					for _, p := range c.pods {
						end, ordered := ends[p.name]
						pods = append(pods, Pod{UID: p.name, Critical: p.critical, Over: ordered && p.takes >= 0 && !now.Before(end)})
					}
					orders, wake, over := plan.Next(pods, now)
					for _, o := range orders {
						got += fmt.Sprintf("%d %s %s, ", second, o.UID, o.Grace)
						for _, p := range c.pods {
							if p.name == o.UID {
								ends[p.name] = now.Add(time.Duration(p.takes) * time.Second)
							}
						}
					}
					if over {
						if got += fmt.Sprintf("%d over", second); got != c.want {
							t.Errorf("got  %s\nwant %s", got, c.want)
						}
						return
					}
					if !wake.After(now) {
						t.Fatalf("at %d s: to be asked again at %v, which is not later", second, wake)
					}
					if len(orders) == 0 {
						break
					}
				}
			}
			t.Errorf("never over: %s", got)
		})
	}
}

// TestPlanWithoutTime: if critical pods have all of the time, the others are ended and not waited
// for, as by a kubelet.
func TestPlanWithoutTime(t *testing.T) {
	now := time.Unix(1000, 0)
	plan := Begin(Graces{Total: 10 * time.Second, Critical: 10 * time.Second}, now)
	orders, wake, over := plan.Next([]Pod{{UID: "a"}, {UID: "c", Critical: true}}, now)
	if got := fmt.Sprint(orders); got != "[{a 0s} {c 10s}]" || over || !wake.Equal(now.Add(10*time.Second)) {
		t.Errorf("orders %s, over %t, wake %v", got, over, wake)
	}
}
