package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/annotation"
)

// A component ends as a module does, with the steps and without.
func TestEndsOfComponents(t *testing.T) {
	for _, c := range []struct {
		args            []string
		code            uint32
		message, stdout string
	}{
		{[]string{"say", "two", "words"}, 0, "", "two words\n"},
		{[]string{"exit", "7"}, 7, "", ""},
		{[]string{"nothing"}, 1, "", ""}, // its run returns an error
		{[]string{"trap"}, 134, "wasm trap: unreachable, in ", ""},
	} {
		for _, w := range walks {
			t.Run(strings.Join(c.args, " ")+"/"+w.name, func(t *testing.T) {
				b := newBench(t, "component", c.args...)
				b.engine = shared.engineWith(t, w.skip)
				exit := b.runToEnd()
				if exit.Code != c.code || !strings.HasPrefix(exit.Message, c.message) || (c.message == "") != (exit.Message == "") || b.stdout.all() != c.stdout {
					t.Errorf("exit %+v, output %q", exit, b.stdout.all())
				}
			})
		}
	}
}

// A component binds its ports itself: those that its container names are not bound for it, be they
// taken or its own. A stop ends its listener.
func TestComponentServes(t *testing.T) {
	p := newPod(t)
	b := newBench(t, "component", "serve")
	b.inPod(p)
	b.bundle.Facts.Listeners = []annotation.Listener{{Name: "own", Port: 8080}, {Name: "taken", Port: 82}}
	defer p.listen(t, ":82").Close()
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "listening\n")
	exit, stdout, stderr := runFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "say", "further"}, Cwd: "/"})
	if exit.Code != 0 || stdout != "further\n" {
		t.Errorf("a further process: %+v, %q, %q", exit, stdout, stderr)
	}
	signal(t, c.Init(), unix.SIGTERM)
	if exit := ended(t, c.Init()); exit.Code != 0 {
		t.Errorf("exit %+v, output %q", exit, b.stdout.soFar())
	}
	b.stdout.await(t, "stopped\n")
}

// BenchmarkComponent compares starts of a C guest as a component with those of its module, by turns:
// Create and Start until its end.
func BenchmarkComponent(b *testing.B) {
	times := map[string][]time.Duration{}
	for b.Loop() {
		for _, guest := range []string{"bare", "adapted"} {
			n := newBench(b, guest)
			n.joinNetwork()
			n.pipes(false)
			c, took := n.timed(b, "hello\n")
			times[guest] = append(times[guest], took)
			<-c.Init().Exited()
			if err := c.Delete(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, all := range times {
		slices.Sort(all)
	}
	module, component := times["bare"], times["adapted"]
	half := len(module) / 2
	b.ReportMetric(float64(module[half].Microseconds())/1000, "module-median-ms")
	b.ReportMetric(float64(component[half].Microseconds())/1000, "component-median-ms")
	b.ReportMetric(float64(component[half])/float64(module[half]), "component/module")
	b.ReportMetric(float64(component[0])/float64(module[0]), "component/module-min")
}
