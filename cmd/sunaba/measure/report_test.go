package measure

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// hundred are pods that cost 1 MiB + i KiB at most, in turns at their start, idle and at work, and
// i tenths of a thousandth of a core.
func hundred() []Figures {
	var all []Figures
	for i := range int64(100) {
		f := Figures{Start: 1 << 20, Idle: 1 << 19, Work: 1 << 18, IdleCPU: 0.1, WorkCPU: float64(i) / 10}
		most := int64(1<<20) + i<<10
		switch i % 3 {
		case 0:
			f.Start = most
		case 1:
			f.Idle = most
		default:
			f.Work = most
		}
		all = append(all, f)
	}
	return all
}

func TestFixed(t *testing.T) {
	for _, c := range []struct {
		name           string
		in             []Figures
		memory, millis int64
	}{
		{"p99 of a hundred, rounded up", hundred(), 2, 10},
		{"one pod", []Figures{{Start: 3 << 20, Idle: 1, Work: 2, IdleCPU: 2.01}}, 3, 3},
		{"just above", []Figures{{Work: 3<<20 + 1}}, 4, 1},
		{"no CPU is the least that can be declared", []Figures{{Idle: 1}}, 1, 1},
	} {
		if memory, millis := Fixed(c.in); memory != c.memory || millis != c.millis {
			t.Errorf("%s: %dMi %dm, want %dMi %dm", c.name, memory, millis, c.memory, c.millis)
		}
	}
}

func TestQuantile(t *testing.T) {
	all := []int64{5, 1, 4, 2, 3}
	for q, want := range map[float64]int64{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(all, q); got != want {
			t.Errorf("%g: %d, want %d", q, got, want)
		}
	}
	if all[0] != 5 {
		t.Error("the figures were sorted in place")
	}
}

// The manifest is one that the server's own reader takes.
func TestManifest(t *testing.T) {
	var out bytes.Buffer
	if err := Manifest(&out, "light", "wasm", "sunaba overhead measure -n 100", hundred(), 0); err != nil {
		t.Fatal(err)
	}
	all, err := runtimeclass.Parse("out.yaml", out.Bytes())
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v in\n%s", all, err, out.String())
	}
	if got := runtimeclass.Quantities(runtimeclass.Overhead(&all[0])); all[0].Name != "light" || all[0].Handler != "wasm" || got != "cpu 10m, memory 2Mi" {
		t.Errorf("%s", out.String())
	}
	if !strings.Contains(out.String(), "# overhead: the 99th percentile of 100 pods") || !strings.Contains(out.String(), "sunaba overhead measure -n 100") {
		t.Errorf("how it was measured is missing:\n%s", out.String())
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := Table(&out, hundred()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"memory, start", "memory, idle", "memory, at work", "CPU, idle", "CPU, at work       4.9m       9.8m     9.9m"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestPlot(t *testing.T) {
	for name, all := range map[string][]Figures{"hundred": hundred(), "all alike": {{Idle: 5 << 20}, {Idle: 5 << 20}}} {
		var out bytes.Buffer
		if err := Plot(&out, "a < b & c", all); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "a &lt; b &amp; c") || !strings.Contains(out.String(), ">declared ") {
			t.Errorf("%s: title or mark is missing:\n%s", name, out.String())
		}
		d := xml.NewDecoder(&out)
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: not XML: %v", name, err)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	for _, c := range []struct{ ip, load, want string }{
		{"10.0.0.1", "8080", "http://10.0.0.1:8080/"}, {"fd00::1", "80/a/b?c=d", "http://[fd00::1]:80/a/b?c=d"},
	} {
		if got := loadURL(c.ip, c.load); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if err := checkLoad(c.load); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"http", "/path", "70000", "-1/x"} {
		if err := checkLoad(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	if err := checkLoad(""); err != nil {
		t.Error(err)
	}
}

// A class that was measured beside other pods says so, and is a manifest all the same.
func TestManifestOfDisturbedFigures(t *testing.T) {
	var out bytes.Buffer
	if err := Manifest(&out, "light", "wasm", "sunaba overhead measure", hundred(), 3); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\n# warning: the figures are disturbed by 3 other pods on this node") {
		t.Errorf("%s", out.String())
	}
	if _, err := runtimeclass.Parse("out", out.Bytes()); err != nil {
		t.Error(err)
	}
}
