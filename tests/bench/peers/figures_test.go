package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// run is one with these medians of ours and the peer's.
func runOf(time, peersTime, rate, peersRate float64) figures {
	own, peer := &subject{title: "sunaba", ours: true, group: "g"}, &subject{title: "other", group: "g"}
	lone := &subject{title: "alone", ours: true, group: "h"}
	var all figures
	all.note("up", "ms", own, time, 1)
	all.note("up", "ms", peer, peersTime, 1)
	all.note("up", "ms", lone, 1000*time, 1)
	all.note("lives", "per second", own, rate, 1)
	all.note("lives", "per second", peer, peersRate, 1)
	return all
}

// beside adds a second peer's time.
func beside(all figures, time float64) figures {
	all.note("up", "ms", &subject{title: "second", group: "g"}, time, 1)
	return all
}

func TestCompare(t *testing.T) {
	data, err := json.Marshal(beside(runOf(10, 100, 40, 10), 10))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "peers.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		now  figures
		want string // what is worse; "" is nothing
	}{
		"the same":                        {runOf(10, 100, 40, 10), ""},
		"a slower machine":                {runOf(30, 300, 10, 2.5), ""},
		"a little worse":                  {runOf(13, 100, 31, 10), ""},
		"better":                          {runOf(1, 100, 400, 10), ""},
		"slower than before":              {runOf(14, 100, 40, 10), "up: ours is 0.14 × that of other, 0.10 × on record"},
		"fewer lives":                     {runOf(10, 100, 29, 10), "lives: ours is 2.90 × that of other, 4.00 × on record"},
		"worse than one of two peers":     {beside(runOf(10, 100, 40, 10), 5), "up: ours is 2.00 × that of second, 1.00 × on record"},
		"something that was not measured": {runOf(14, 100, 40, 10)[2:3], ""},
	} {
		err := c.now.compare(file)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, c := range []struct {
		peers float64
		fails bool
	}{{0.01, false}, {0.25, false}, {0.26, true}, {10, true}} {
		idle := func(ours float64) figures {
			var all figures
			all.note("idle", "%", &subject{title: "sunaba", ours: true, group: "g"}, ours*c.peers, 1)
			all.note("idle", "%", &subject{title: "other", group: "g"}, c.peers, 1)
			return all
		}
		if data, err = json.Marshal(idle(1)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := idle(2).compare(file); (err != nil) != c.fails {
			t.Errorf("twice %v %% of a processor: %v", c.peers, err)
		}
	}
	if err := runOf(1, 1, 1, 1).compare(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist was compared with")
	}
}

func TestRows(t *testing.T) {
	var lines []string
	for _, row := range runOf(10, 100, 40, 10).rows() {
		lines = append(lines, strings.Join(row, "|"))
	}
	want := "up, ms|sunaba|10.00 [10.00 10.00]||1.0\nup, ms|other|100.00 [100.00 100.00]|0.10|1.0\nup, ms|alone|10000.00 [10000.00 10000.00]||1.0\n" +
		"lives, per second|sunaba|40.00 [40.00 40.00]||1.0\nlives, per second|other|10.00 [10.00 10.00]|4.00|1.0"
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
