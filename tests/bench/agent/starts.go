package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/measure"
)

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// starts times one pod after another, by turns made by the agent and by the bare calls: from the
// file to the first line of its container, from a crash to the next start, from the file's end to
// the pod's.
func (b *bench) starts(ctx context.Context) error {
	return b.on(ctx, true, func(m *machine) error {
		for _, handler := range b.handlers() {
			var file, bareFile, gone, crash, bareCrash []float64
			for i := range b.rounds + 2 { // the first ones warm caches
				name := fmt.Sprintf("%s-%d", handler, i)
				started, ended, err := m.fromFile(name, idle(handler))
				if err != nil {
					return err
				}
				next, err := m.afterCrash(name+"-crash", handler)
				if err != nil {
					return err
				}
				bareStarted, bareNext, err := m.byCalls(name, handler)
				if err != nil {
					return err
				}
				if i < 2 {
					continue
				}
				file, gone, crash = append(file, ms(started)), append(gone, ms(ended)), append(crash, ms(next))
				bareFile, bareCrash = append(bareFile, ms(bareStarted)), append(bareCrash, ms(bareNext))
			}
			b.beside(handler+": file → first line, ms, beside the bare calls", file, bareFile, 20)
			b.beside(handler+": crash → next start, ms, beside CreateContainer and StartContainer", crash, bareCrash, 10)
			end := measure.SpreadOf(gone)
			goal := 1050.0 // the file must stay away for a second
			if handler == "wasm" {
				goal += 2000 // guests take no SIGTERM, and the least time that a kubelet gives is 2 s
			}
			b.table.Add(handler+": file removed → all gone, ms", end.Text("%.0f"), "", "", fmt.Sprintf("≤ %g", goal), end.Median <= goal)
		}
		return nil
	})
}

// beside adds what the agent takes longer than others, with the most that it may.
func (b *bench) beside(what string, ours, others []float64, goal float64) {
	a, o := measure.SpreadOf(ours), measure.SpreadOf(others)
	more := a.Median - o.Median
	b.table.Add(what, a.Text("%.1f"), o.Text("%.1f"), fmt.Sprintf("%+.1f", more), fmt.Sprintf("≤ +%g", goal), more <= goal)
}

// fromFile runs a pod of a file.
func (m *machine) fromFile(name string, s shape) (started, gone time.Duration, err error) {
	begun, err := m.put(map[string]string{name: m.manifest(name, s)})
	if err != nil {
		return 0, 0, err
	}
	first, err := m.firstLine(filepath.Join(m.Options.Dir, "pod-logs", "default_"+name+"_*", "c", "0.log"))
	if err != nil {
		return 0, 0, err
	}
	if err := m.awaitReady(1); err != nil {
		return 0, 0, err
	}
	gone, err = m.remove(name)
	return first.Sub(begun), gone, err
}

// remove removes a file and waits until its pod is removed; the server has no other.
func (m *machine) remove(name string) (time.Duration, error) {
	begun := time.Now()
	if err := os.Remove(filepath.Join(m.folder(), name+".yaml")); err != nil {
		return 0, err
	}
	err := m.until("pod "+name+" is removed", 5*time.Millisecond, func() (bool, error) {
		list, err := m.ListPodSandbox(m.ctx, &cri.ListPodSandboxRequest{})
		if err != nil || len(list.GetItems()) > 0 {
			return false, err
		}
		pods, err := m.listed()
		return len(pods) == 0, err
	})
	return time.Since(begun), err
}

// afterCrash is the time from the end of a pod's first container, which is killed, to the start of
// its second.
func (m *machine) afterCrash(name, handler string) (next time.Duration, err error) {
	if _, err := m.put(map[string]string{name: m.manifest(name, idle(handler))}); err != nil {
		return 0, err
	}
	if err := m.awaitReady(1); err != nil {
		return 0, err
	}
	if err := m.kill(1); err != nil {
		return 0, err
	}
	err = m.until("second container of "+name, 20*time.Millisecond, func() (bool, error) {
		list, err := m.ListContainers(m.ctx, &cri.ListContainersRequest{})
		if err != nil {
			return false, err
		}
		var finished, started int64
		for _, c := range list.GetContainers() {
			status, err := m.ContainerStatus(m.ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId()})
			if err != nil {
				return false, nil // it was removed meanwhile
			}
			if c.GetMetadata().GetAttempt() == 0 {
				finished = status.GetStatus().GetFinishedAt()
			} else {
				started = status.GetStatus().GetStartedAt()
			}
		}
		next = time.Duration(started - finished)
		return finished > 0 && started > 0, nil
	})
	_, removed := m.remove(name)
	return next, errors.Join(err, removed)
}

// kill kills the processes of the server's containers, which are count.
func (m *machine) kill(count int) error {
	list, err := m.ListContainers(m.ctx, &cri.ListContainersRequest{})
	if err != nil || len(list.GetContainers()) != count {
		return fmt.Errorf("find %d containers: %d are there: %w", count, len(list.GetContainers()), err)
	}
	for _, c := range list.GetContainers() {
		status, err := m.ContainerStatus(m.ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
		if err != nil {
			return err
		}
		var info struct{ Pid int }
		if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil || info.Pid == 0 {
			return fmt.Errorf("find the process of container %s: %q (%v)", c.GetMetadata().GetName(), status.GetInfo()["info"], err)
		}
		if err := syscall.Kill(info.Pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill the process of container %s: %w", c.GetMetadata().GetName(), err)
		}
	}
	return nil
}

// byCalls does the same by bare calls: a pod, then a second container in it.
func (m *machine) byCalls(name, handler string) (started, next time.Duration, err error) {
	p, err := m.up(name, idle(handler))
	if err != nil {
		return 0, 0, err
	}
	first, err := m.firstLine(p.log)
	if err != nil {
		return 0, 0, err
	}
	one := p.container
	begun := time.Now()
	if err := m.another(p, idle(handler)); err != nil {
		return 0, 0, err
	}
	status, err := m.ContainerStatus(m.ctx, &cri.ContainerStatusRequest{ContainerId: p.container})
	if err != nil {
		return 0, 0, err
	}
	next = time.Unix(0, status.GetStatus().GetStartedAt()).Sub(begun)
	_, stop := m.StopContainer(m.ctx, &cri.StopContainerRequest{ContainerId: one, Timeout: 1})
	return first.Sub(p.begun), next, errors.Join(stop, m.down(p))
}

// crowd times many files at once, until the last container has started.
func (b *bench) crowd(ctx context.Context) error {
	rounds := max(b.rounds/6, 1)
	return b.on(ctx, true, func(m *machine) error {
		for _, handler := range b.handlers() {
			for _, count := range []int{b.pods / 2, b.pods} {
				var ours, others []float64
				for range rounds {
					begun, err := m.many(count, idle(handler))
					if err != nil {
						return err
					}
					last, err := m.lastStart()
					if err != nil {
						return err
					}
					ours = append(ours, ms(last.Sub(begun)))
					if err := m.removeAll(); err != nil {
						return err
					}
					begun, pods, err := m.manyBare(count, idle(handler))
					if err != nil {
						return err
					}
					if last, err = m.lastStart(); err != nil {
						return err
					}
					others = append(others, ms(last.Sub(begun)))
					for _, p := range pods {
						if err := m.down(p); err != nil {
							return err
						}
					}
				}
				a, o := measure.SpreadOf(ours), measure.SpreadOf(others)
				b.table.Add(fmt.Sprintf("%s: %d files at once → all started, ms, beside the bare calls", handler, count), a.Text("%.0f"), o.Text("%.0f"),
					fmt.Sprintf("%.2f", a.Median/o.Median), "≤ 1.5 ×", a.Median <= 1.5*o.Median)
			}
		}
		return nil
	})
}

// edits times edits of a ConfigMap, until a container would see them.
func (b *bench) edits(ctx context.Context) error {
	return b.on(ctx, true, func(m *machine) error {
		s := idle("wasm")
		s.volumes = "[{name: v, configMap: {name: page}}]"
		s.more = "    volumeMounts: [{name: v, mountPath: /v}]\n"
		configMap := func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\ndata: {text: edit-%d}\n", i)
		}
		if _, err := m.put(map[string]string{"page": configMap(0), "pod": m.manifest("pod", s)}); err != nil {
			return err
		}
		if err := m.awaitReady(1); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(m.Root, "pods", "*", "volumes", "v", "text"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("find the volume's file: %q, %v", files, err)
		}
		var took []float64
		for i := range b.rounds {
			begun, err := m.put(map[string]string{"page": configMap(i + 1)})
			if err != nil {
				return err
			}
			if err := m.until("edit", time.Millisecond, func() (bool, error) {
				text, err := os.ReadFile(files[0])
				return string(text) == fmt.Sprint("edit-", i+1), err
			}); err != nil {
				return err
			}
			took = append(took, ms(time.Since(begun)))
		}
		seen := measure.SpreadOf(took)
		b.table.Add("ConfigMap edit → seen in the volume, ms", seen.Text("%.1f"), "", "", "≤ 30", seen.Median <= 30)
		return nil
	})
}
