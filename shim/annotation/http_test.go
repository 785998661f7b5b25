package annotation

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestHTTP(t *testing.T) {
	all := map[string]string{
		HTTPPort: "80", HTTPInstances: "one", HTTPTimeout: "1m30s", HTTPMemory: "64Mi", HTTPBody: "10", HTTPConcurrency: "7", HTTPAccessLog: "false",
	}
	got, _, err := ReadHTTP(func(name string) string { return all[name] })
	want := HTTP{Port: 80, Kept: true, Timeout: 90 * time.Second, Memory: 64 << 20, Body: 10, Concurrency: 7, NoAccessLog: true}
	if err != nil || got != want || got.Seats() != 1 || got.Time() != 90*time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
	plain := map[string]string{HTTPInstances: "request", HTTPTimeout: "0", HTTPAccessLog: "true", HTTPConcurrency: "7"}
	got, _, err = ReadHTTP(func(name string) string { return plain[name] })
	if err != nil || got.Kept || got.NoAccessLog || got.Time() != 0 || got.Seats() != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
	if h := (HTTP{}); h.Seats() != 100 || h.Time() != 10*time.Minute {
		t.Errorf("defaults: %d, %s", h.Seats(), h.Time())
	}
}

func TestHTTPThatCannotBeRead(t *testing.T) {
	for name, texts := range map[string][]string{
		HTTPPort:        {"0", "65536", "-1", "http"},
		HTTPInstances:   {"two", "Request"},
		HTTPTimeout:     {"30", "-1s", "25h"},
		HTTPMemory:      {"0", "64M", "-1", "Mi", "9223372036854775807Ki"},
		HTTPBody:        {"0", "x"},
		HTTPConcurrency: {"0", "1001"},
		HTTPAccessLog:   {"1", "False"},
	} {
		for _, text := range texts {
			got, at, err := ReadHTTP(func(asked string) string { return map[string]string{name: text}[asked] })
			if !errors.Is(err, errdefs.ErrInvalidArgument) || at != name || got != (HTTP{}) {
				t.Errorf("%s %q: %+v, %s, %v", name, text, got, at, err)
			}
			if _, err := Read(map[string]string{name: text}); err == nil || !strings.Contains(err.Error(), "annotation "+name+": ") {
				t.Errorf("%s %q: %v", name, text, err)
			}
		}
	}
}
