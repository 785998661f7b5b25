package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/measure"
)

// settle is how long a server may take to come to rest.
const settle = 5 * time.Second

// memory compares a server with an agent and one without, both without pods and with many.
func (b *bench) memory(ctx context.Context) error {
	figures := map[bool][2]float64{}
	for _, agent := range []bool{false, true} {
		err := b.on(ctx, agent, func(m *machine) error {
			var f [2]float64
			var err error
			if f[0], err = m.pss(); err != nil {
				return err
			}
			if agent {
				_, err = m.many(b.pods, serving("{httpGet: {port: 8080}, periodSeconds: 10}"))
			} else {
				_, _, err = m.manyBare(b.pods, serving(""))
			}
			if err != nil {
				return err
			}
			f[1], err = m.pss()
			figures[agent] = f
			return err
		})
		if err != nil {
			return err
		}
	}
	with, without := figures[true], figures[false]
	for i, what := range []string{"no pods", fmt.Sprintf("%d pods", b.pods)} {
		more, goal := with[i]-without[i], []float64{2, 8}[i]
		b.table.Add("PSS of the server, "+what+", MiB, with and without an agent", fmt.Sprintf("%.1f", with[i]), fmt.Sprintf("%.1f", without[i]),
			fmt.Sprintf("+%.1f", more), fmt.Sprintf("≤ +%g", goal), more <= goal)
	}
	return nil
}

// pss is the server's, in MiB, when it has been at rest for a while.
func (m *machine) pss() (float64, error) {
	if err := measure.Wait(m.ctx, 4*settle); err != nil {
		return 0, err
	}
	bytes, err := measure.PSS(m.DaemonPID())
	return float64(bytes) / (1 << 20), err
}

// used is processor time of a server and its shims, and how often threads of the server woke up.
type used struct {
	daemon, shims time.Duration
	wakes         int
}

func (u used) since(before used) used {
	return used{u.daemon - before.daemon, u.shims - before.shims, u.wakes - before.wakes}
}

// look is what was used until now; the shims' without that of their children.
func (m *machine) look() (u used, err error) {
	if u.daemon, err = measure.CPUTime(m.DaemonPID()); err != nil {
		return u, err
	}
	if u.wakes, err = wakes(m.DaemonPID()); err != nil {
		return u, err
	}
	shims, err := measure.Shims(m.Node)
	if err != nil {
		return u, err
	}
	for _, pid := range shims {
		own, err := measure.CPUTime(pid)
		if err != nil {
			return u, err
		}
		u.shims += own
	}
	return u, nil
}

// wakes is how often the threads of a process have waited and been woken.
func wakes(pid int) (sum int, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range threads {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(data), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		sum += n
	}
	return sum, nil
}

// spent is what is used while something continues for so long.
func (m *machine) spent(length time.Duration, meanwhile func(context.Context) error) (used, error) {
	before, err := m.look()
	if err != nil {
		return used{}, err
	}
	ctx, cancel := context.WithTimeout(m.ctx, length)
	defer cancel()
	if err := meanwhile(ctx); err != nil {
		return used{}, err
	}
	<-ctx.Done()
	if m.ctx.Err() != nil {
		return used{}, m.ctx.Err()
	}
	after, err := m.look()
	return after.since(before), err
}

func nothing(context.Context) error { return nil }

// probed are the probes that are measured, with the goal in per cent of a processor; the agent's
// own part for exec probes is what the same calls of a client take less.
var probed = []probing{
	{"idle", "no probes", idle("wasm"), 0.02, nil},
	{"http", "HTTP", serving("{httpGet: {port: 8080}, periodSeconds: 10}"), 0.5, nil},
	{"tcp", "TCP", serving("{tcpSocket: {port: 8080}, periodSeconds: 10}"), 0.2, nil},
	{"exec-guest", "exec of a guest", withProbe(idle("wasm"), `{exec: {command: [/guest.wasm, exit, "0"]}, periodSeconds: 10, timeoutSeconds: 10}`), 0.3, []string{"/guest.wasm", "exit", "0"}},
	{"exec-runc", "exec of runc", withProbe(idle("runc"), "{exec: {command: [/bin/true]}, periodSeconds: 10, timeoutSeconds: 10}"), 0.3, []string{"/bin/true"}},
}

func withProbe(s shape, probe string) shape {
	s.probe = probe
	return s
}

type probing struct {
	part, name string
	shape
	goal float64
	exec []string // what a client runs instead
}

// probes counts the processor time of many pods' probes.
func (b *bench) probes(p probing) func(context.Context) error {
	return func(ctx context.Context) error {
		var with, without used
		err := b.on(ctx, true, func(m *machine) (err error) {
			if _, err = m.many(b.pods, p.shape); err != nil {
				return err
			}
			if err := measure.Wait(ctx, 3*settle); err != nil { // so that probes have taken their places
				return err
			}
			with, err = m.spent(b.watch, nothing)
			return err
		})
		if err == nil && (p.exec != nil || p.probe == "") {
			err = b.on(ctx, false, func(m *machine) (err error) {
				_, pods, err := m.manyBare(b.pods, p.shape)
				if err != nil {
					return err
				}
				if err := measure.Wait(ctx, 3*settle); err != nil {
					return err
				}
				without, err = m.spent(b.watch, func(ctx context.Context) error { return m.execs(ctx, pods, p.exec) })
				return err
			})
		}
		if err != nil {
			return err
		}
		b.tell(p.name, with, without, p.goal, p.exec != nil)
		return nil
	}
}

// execs runs a command in each pod every ten seconds, one after another.
func (m *machine) execs(ctx context.Context, pods []*bare, command []string) error {
	if command == nil {
		return nil
	}
	ticks := time.NewTicker(10 * time.Second / time.Duration(len(pods)))
	defer ticks.Stop()
	for i := 0; ; i++ {
		select {
		case <-ticks.C:
			if _, err := m.ExecSync(m.ctx, &cri.ExecSyncRequest{ContainerId: pods[i%len(pods)].container, Cmd: command, Timeout: 10}); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *bench) tell(name string, with, without used, goal float64, exec bool) {
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / b.watch.Seconds() }
	text := func(u used) string { return fmt.Sprintf("%.2f", percent(u.daemon)) }
	others, own := "", percent(with.daemon)
	if exec || without.wakes > 0 {
		others = text(without)
	}
	if exec {
		own -= percent(without.daemon)
	}
	more := fmt.Sprintf("%+.2f", percent(with.daemon-without.daemon))
	if others == "" {
		more = ""
	}
	b.table.Add(fmt.Sprintf("server, %% of a processor, %d pods, %s every 10 s", b.pods, name), text(with), others, more, fmt.Sprintf("≤ %g", goal), own <= goal)
	b.table.Add("  its threads' wakes per second", fmt.Sprintf("%.1f", float64(with.wakes)/b.watch.Seconds()), fmt.Sprintf("%.1f", float64(without.wakes)/b.watch.Seconds()), "", "", false)
	if exec && strings.Contains(name, "guest") { // the calls' own costs too
		all := percent(with.daemon + with.shims)
		b.table.Add("  server and shims, %", fmt.Sprintf("%.2f", all), fmt.Sprintf("%.2f", percent(without.daemon+without.shims)), "", "≤ 1.5", all <= 1.5)
	}
	b.table.Add("  shims, %", fmt.Sprintf("%.2f", percent(with.shims)), fmt.Sprintf("%.2f", percent(without.shims)), "", "", false)
}
