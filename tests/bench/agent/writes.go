package main

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/measure"
)

// get times the command that lists the pods.
func (b *bench) get(m *machine) error {
	commands := [][]string{{"get", "pods", "--state", m.State}, {"--version"}}
	var took [2][]float64
	for range b.rounds {
		for i, args := range commands { // by turns
			begun := time.Now()
			if said, err := exec.CommandContext(m.ctx, filepath.Join(b.bin, "sunaba"), args...).CombinedOutput(); err != nil {
				return fmt.Errorf("sunaba %s: %w\n%s", args[0], err, said)
			}
			took[i] = append(took[i], ms(time.Since(begun)))
		}
	}
	all, start := measure.SpreadOf(took[0]), measure.SpreadOf(took[1])
	b.table.Add(fmt.Sprintf("sunaba get pods, %d pods, ms, beside a start of the program that does nothing", b.pods), all.Text("%.1f"), start.Text("%.1f"),
		fmt.Sprintf("%+.1f", all.Median-start.Median), "≤ 20", all.Median <= 20)
	return nil
}

// writes counts the synced writes of the server: those below ROOT/pods are the agent's, the others
// are those that the bare calls take too.
func (b *bench) writes(ctx context.Context) error {
	return b.on(ctx, true, func(m *machine) error {
		const pods = 10
		for _, step := range []struct {
			what string
			goal float64
			do   func() error
		}{
			{"start of a pod", 6, func() error { _, err := m.many(pods, idle("wasm")); return err }},
			{"end of a container and its next start", 1, func() error { return m.crashAll(pods) }},
			{"order to restart a container, its end and its next start", 2, m.restartAll},
			{fmt.Sprintf("pod in %v of quiet", b.quiet), 0, func() error { return b.quietly(m) }},
			{"end of a pod", -1, m.removeAll},
		} {
			ours, others, err := m.synced(step.do)
			if err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
			goal := ""
			if step.goal >= 0 {
				goal = fmt.Sprintf("≤ %g", step.goal)
			}
			own := float64(ours) / pods
			b.table.Add("synced writes for the "+step.what+", the agent's beside the server's", fmt.Sprintf("%.1f", own),
				fmt.Sprintf("%.1f", float64(others)/pods), "", goal, own <= step.goal)
		}
		return nil
	})
}

// quietly counts the bytes that the server and its shims have the disk write while nothing happens.
func (b *bench) quietly(m *machine) error {
	if err := measure.Wait(m.ctx, 3*settle); err != nil {
		return err
	}
	begun := time.Now()
	before, err := measure.Written(m.Node)
	if err != nil {
		return err
	}
	if err := measure.Wait(m.ctx, b.quiet); err != nil {
		return err
	}
	after, err := measure.Written(m.Node)
	if err != nil {
		return err
	}
	if err := filepath.WalkDir(m.Options.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it may have been removed meanwhile
		}
		if info, err := d.Info(); err == nil && info.ModTime().After(begun) {
			fmt.Fprintf(b.out, "written while nothing happened: %s\n", path)
		}
		return nil
	}); err != nil {
		return err
	}
	bytes := float64(after - before)
	b.table.Add("written to disk by server and shims in a quiet hour, KiB", fmt.Sprintf("%.1f", bytes/1024*time.Hour.Seconds()/b.quiet.Seconds()), "", "", "≤ 0", bytes == 0)
	return nil
}

// synced counts the synced writes of the server while something is done.
func (m *machine) synced(do func() error) (ours, others int, err error) {
	k, err := killer.Send(killer.Order{PID: m.DaemonPID()})
	if err != nil {
		return 0, 0, err
	}
	done := do()
	report, err := k.Leave()
	if done != nil {
		return 0, 0, done
	}
	for _, s := range report.Steps {
		switch {
		case s.Call != "fsync" && s.Call != "fdatasync" && s.Call != "syncfs":
		case strings.HasPrefix(s.On, filepath.Join(m.Root, "pods")):
			ours++
		default:
			others++
		}
	}
	return ours, others, err
}

// restartAll has each pod's container started again, by `sunaba restart`.
func (m *machine) restartAll() error {
	pods, err := m.listed()
	if err != nil {
		return err
	}
	for _, p := range pods {
		if said, err := exec.CommandContext(m.ctx, filepath.Join(m.Options.Bin, "sunaba"), "restart", p.Name, "--state", m.State).CombinedOutput(); err != nil {
			return fmt.Errorf("sunaba restart: %w\n%s", err, said)
		}
	}
	return m.restarted(2)
}

// crashAll kills the processes of all containers, which are count, and waits for their first restart.
func (m *machine) crashAll(count int) error {
	if err := m.kill(count); err != nil {
		return err
	}
	return m.restarted(1)
}

// restarted waits until each pod's container runs and was started again as often.
func (m *machine) restarted(times int32) error {
	return m.until("all containers run again", 200*time.Millisecond, func() (bool, error) {
		pods, err := m.listed()
		for _, p := range pods {
			if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].RestartCount != times || !isReady(&p) {
				return false, err
			}
		}
		return true, err
	})
}
