package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sunaba-project/sunaba/host/unixsocket/unixhttp"
	"github.com/sunaba-project/sunaba/tests/measure"
)

// boot times the start of a server that finds many files, until the last container has started,
// beside one whose client makes the same pods as soon as it answers.
func (b *bench) boot(ctx context.Context) error {
	took := map[bool][]float64{}
	for _, agent := range []bool{true, false} {
		err := b.on(ctx, agent, func(m *machine) error {
			for range max(b.rounds/6, 1) {
				one, err := m.boot(b.pods)
				if err != nil {
					return err
				}
				took[agent] = append(took[agent], ms(one))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	a, o := measure.SpreadOf(took[true]), measure.SpreadOf(took[false])
	b.table.Add(fmt.Sprintf("server starts with %d files → all Ready, ms, beside the bare calls", b.pods), a.Text("%.0f"), o.Text("%.0f"),
		fmt.Sprintf("%.2f", a.Median/o.Median), "≤ 1.5 ×", a.Median <= 1.5*o.Median)
	return nil
}

// boot starts the server anew, with files for its agent or with pods that its client makes, and
// removes them.
func (m *machine) boot(count int) (took time.Duration, err error) {
	if err := m.SignalDaemon(syscall.SIGTERM); err != nil {
		return 0, err
	}
	agent := m.client != nil
	if agent {
		files := map[string]string{}
		for i := range count {
			name := fmt.Sprintf("p%03d", i)
			files[name] = m.manifest(name, idle("wasm"))
		}
		if _, err := m.put(files); err != nil {
			return 0, err
		}
		// A listing reads what is younger than a second later.
		if err := measure.Wait(m.ctx, 2*time.Second); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	if err := m.StartDaemon(m.ctx); err != nil {
		return 0, err
	}
	var pods []*bare
	if agent {
		if err = m.connect(); err == nil {
			err = m.awaitReady(count)
		}
	} else {
		_, pods, err = m.manyBare(count, idle("wasm"))
	}
	if err != nil {
		return 0, err
	}
	last, err := m.lastStart()
	if agent {
		return last.Sub(begun), errors.Join(err, m.removeAll())
	}
	for _, p := range pods {
		err = errors.Join(err, m.down(p))
	}
	return last.Sub(begun), err
}

// restart times what follows a kill -9 of a server with many running pods, and the command that
// lists them.
func (b *bench) restart(ctx context.Context) error {
	const rounds = 10
	took := map[bool][]float64{}
	for _, agent := range []bool{false, true} {
		err := b.on(ctx, agent, func(m *machine) (err error) {
			if agent {
				_, err = m.many(b.pods, idle("wasm"))
			} else {
				_, _, err = m.manyBare(b.pods, idle("wasm"))
			}
			if err != nil {
				return err
			}
			for range rounds {
				one, err := m.startAgain(agent)
				if err != nil {
					return err
				}
				took[agent] = append(took[agent], ms(one))
			}
			if agent {
				return b.get(m)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	ours, bare := measure.SpreadOf(took[true]), measure.SpreadOf(took[false])
	const goal = 300 // in all
	b.table.Add(fmt.Sprintf("server killed with %d pods → all Ready, ms, beside a server without an agent → it answers", b.pods),
		ours.Text("%.1f"), bare.Text("%.1f"), fmt.Sprintf("%.1f", ours.Median), fmt.Sprintf("≤ %d", goal), ours.Median <= goal)
	return nil
}

// startAgain kills the server and starts it. With an agent it waits until all pods are ready.
func (m *machine) startAgain(agent bool) (time.Duration, error) {
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := m.StartDaemon(m.ctx); err != nil || !agent {
		return time.Since(begun), err
	}
	if err := m.connect(); err != nil {
		return 0, err
	}
	client, err := unixhttp.Connect(m.ctx, filepath.Join(m.State, "pods.sock"))
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	err = m.until("all pods are ready again", 2*time.Millisecond, func() (bool, error) {
		answer, err := client.Get("http://localhost/readyz")
		if err != nil {
			return false, err
		}
		return answer.StatusCode == 200, answer.Body.Close()
	})
	return time.Since(begun), errors.Join(err, m.awaitReady(len(m.files())))
}

// files are the names in the folder of manifests.
func (m *machine) files() []string {
	found, _ := filepath.Glob(filepath.Join(m.folder(), "*.yaml")) // the pattern is right
	return found
}
