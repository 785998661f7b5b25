package imagegc

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// GC1: from which use on, and down to which, room is made.
func TestMissing(t *testing.T) {
	p := Policy{High: 85, Low: 80}
	for _, c := range []struct {
		space   Space
		percent int
		missing int64
	}{
		{Space{1000, 151}, 85, 49}, // rounded up, as a kubelet does
		{Space{1000, 160}, 84, 0},
		{Space{1000, 150}, 85, 50},
		{Space{1000, 0}, 100, 200},
		{Space{1000, -5}, 100, 200},
		{Space{1000, 2000}, 0, 0},
		{Space{0, 0}, 0, 0},
	} {
		if c.space.Capacity > 0 && c.space.Percent() != c.percent {
			t.Errorf("%+v: %d %%, want %d", c.space, c.space.Percent(), c.percent)
		}
		if got := p.Missing(c.space); got != c.missing {
			t.Errorf("%+v: %d bytes are missing, want %d", c.space, got, c.missing)
		}
	}
	for _, high := range []int{0, 100} {
		if p := (Policy{High: high}); !p.Off() || p.Missing(Space{1000, 0}) != 0 {
			t.Errorf("high %d is not off", high)
		}
	}
}

// images.budget_mib counts as the size of the image file system where it is nearer.
func TestBudget(t *testing.T) {
	disk := Space{Capacity: 1000, Available: 500}
	for _, c := range []struct {
		budget, used int64
		want         Space
	}{
		{0, 400, disk}, {2000, 400, disk}, {500, 400, Space{500, 100}}, {300, 400, Space{300, 0}},
	} {
		if got := disk.within(c.budget, c.used); got != c.want {
			t.Errorf("budget %d, used %d: %+v, want %+v", c.budget, c.used, got, c.want)
		}
	}
}

// GC1, IM13: what may be removed, and in which order.
func TestBook(t *testing.T) {
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	p := Policy{High: 85, Low: 80, MinAge: 2 * time.Minute, MaxAge: time.Hour}
	var b Book
	all := []Image{{ID: "never"}, {ID: "pinned", Pinned: true}, {ID: "long-ago"}, {ID: "lately"}, {ID: "now"}}
	look := func(minute int, images []Image, used string) {
		b.Look(images, func(i Image) bool { return slices.Contains(strings.Fields(used), i.ID) }, at(minute))
	}
	expect := func(what string, got []Image, want string) {
		t.Helper()
		var ids []string
		for _, i := range got {
			ids = append(ids, i.ID)
		}
		if strings.Join(ids, " ") != want {
			t.Errorf("%s: %q, want %q", what, ids, want)
		}
	}
	look(0, all, "long-ago lately now")
	look(5, all, "lately now")
	look(10, append(all, Image{ID: "young"}), "now")
	expect("unused", b.Unused(p, at(10)), "never long-ago lately")
	expect("expired", b.Expired(p, at(10)), "")
	expect("a little later", b.Unused(p, at(12)), "never young long-ago lately")
	look(60, append(all, Image{ID: "young"}), "now")
	expect("after an hour", b.Expired(p, at(60)), "")
	expect("after more than an hour", b.Expired(p, at(61)), "never long-ago")
	expect("without an age", b.Expired(Policy{}, at(600)), "")
	look(70, all[1:], "")
	expect("one is gone, one comes again", b.Unused(p, at(70)), "long-ago lately now")
	look(-100, all[1:], "")
	expect("the clock was set back", b.Unused(p, at(-99)), "")
	expect("the clock was set back, later", b.Unused(p, at(-98)), "lately long-ago now")
	if b.Expired(p, at(-98)) != nil {
		expect("the clock was set back, expired", b.Expired(p, at(-98)), "")
	}
}

func TestSizeText(t *testing.T) {
	for bytes, want := range map[int64]string{1: "1 B", 1536: "1.5 KiB", 64 << 20: "64.0 MiB", 3 << 40: "3.0 TiB", 3 << 50: "3072.0 TiB"} {
		if got := sizeText(bytes); got != want {
			t.Errorf("%d: %q, want %q", bytes, got, want)
		}
	}
}
