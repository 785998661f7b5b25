package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// shape is what a measured pod is like: one container.
type shape struct {
	handler string   // "" for the default one, for guests
	command []string // in place of the image's
	args    []string
	probe   string // a readiness probe in YAML, "" for none
	policy  string // restartPolicy
	more    string // further fields of the container in YAML
	volumes string
}

// idle is a pod that does nothing. It ends at once when it is asked to.
func idle(handler string) shape {
	if handler != "runc" {
		return shape{handler: handler, args: []string{"idle"}}
	}
	return shape{handler: handler, command: []string{"sh", "-c", "trap 'exit 0' TERM; echo idle; sleep 100000 & wait"}}
}

// serving is a guest that answers HTTP on port 8080.
func serving(probe string) shape {
	return shape{handler: "wasm", args: []string{"serve"}, probe: probe}
}

func (m *machine) image(s shape) string {
	if s.handler == "runc" {
		return m.busybox
	}
	return m.guest
}

// manifest is the file of a pod.
func (m *machine) manifest(name string, s shape) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  restartPolicy: %s\n  terminationGracePeriodSeconds: 1\n", name, orAlways(s.policy))
	if s.handler != "" {
		text += "  runtimeClassName: " + s.handler + "\n"
	}
	if s.volumes != "" {
		text += "  volumes: " + s.volumes + "\n"
	}
	text += fmt.Sprintf("  containers:\n  - name: c\n    image: %s\n    ports: [{containerPort: 8080}]\n", m.image(s))
	for field, value := range map[string][]string{"command": s.command, "args": s.args} {
		if value != nil {
			text += fmt.Sprintf("    %s: %s\n", field, quoted(value))
		}
	}
	if s.probe != "" {
		text += "    readinessProbe: " + s.probe + "\n"
	}
	return text + s.more
}

func orAlways(policy string) string {
	if policy == "" {
		return "Always"
	}
	return policy
}

func quoted(list []string) string {
	text := ""
	for i, v := range list {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%q", v)
	}
	return "[" + text + "]"
}

func (m *machine) folder() string { return filepath.Join(m.Options.Dir, "manifests") }

// put renames files into the folder of manifests, and returns when it started to.
func (m *machine) put(files map[string]string) (time.Time, error) {
	var temps []string
	for name, text := range files {
		temp := filepath.Join(m.folder(), "."+name)
		if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
			return time.Time{}, err
		}
		temps = append(temps, temp)
	}
	slices.Sort(temps)
	begun := time.Now()
	for _, temp := range temps {
		if err := os.Rename(temp, filepath.Join(m.folder(), filepath.Base(temp)[1:]+".yaml")); err != nil {
			return begun, err
		}
	}
	return begun, nil
}

// many puts so many pods of a shape and waits until they are ready.
func (m *machine) many(count int, s shape) (begun time.Time, err error) {
	files := map[string]string{}
	for i := range count {
		name := fmt.Sprintf("p%03d", i)
		files[name] = m.manifest(name, s)
	}
	if begun, err = m.put(files); err != nil {
		return begun, err
	}
	return begun, m.awaitReady(count)
}

// removeAll removes all files and waits until nothing of their pods is left.
func (m *machine) removeAll() error {
	files, err := filepath.Glob(filepath.Join(m.folder(), "*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return m.until("all pods are removed", 100*time.Millisecond, func() (bool, error) {
		pods, err := m.listed()
		if err != nil || len(pods) > 0 {
			return false, err
		}
		list, err := m.ListPodSandbox(m.ctx, &cri.ListPodSandboxRequest{})
		return len(list.GetItems()) == 0, err
	})
}

// bare is a pod that the bare calls have made.
type bare struct {
	id, container, log string
	config             *cri.PodSandboxConfig
	begun              time.Time
}

// up makes a pod as the agent does: by RunPodSandbox, CreateContainer and StartContainer. It has no
// files of its own, neither /etc/hosts nor a termination log.
func (m *machine) up(name string, s shape) (*bare, error) {
	p := &bare{config: m.PodConfig("default", name)}
	p.config.PortMappings = []*cri.PortMapping{{ContainerPort: 8080, Protocol: cri.Protocol_TCP}}
	p.begun = time.Now()
	sandbox, err := m.RunPodSandbox(m.ctx, &cri.RunPodSandboxRequest{Config: p.config, RuntimeHandler: s.handler})
	if err != nil {
		return nil, err
	}
	p.id = sandbox.GetPodSandboxId()
	return p, m.another(p, s)
}

// another creates and starts a container in a pod.
func (m *machine) another(p *bare, s shape) (err error) {
	config := node.ContainerConfig(m.image(s))
	config.Command, config.Args = s.command, s.args
	if p.container, p.log, err = m.Create(m.ctx, p.id, p.config, config); err != nil {
		return err
	}
	_, err = m.StartContainer(m.ctx, &cri.StartContainerRequest{ContainerId: p.container})
	return err
}

// down ends it.
func (m *machine) down(p *bare) error {
	_, stop := m.StopContainer(m.ctx, &cri.StopContainerRequest{ContainerId: p.container, Timeout: 1})
	_, remove := m.RemoveContainer(m.ctx, &cri.RemoveContainerRequest{ContainerId: p.container})
	_, stopped := m.StopPodSandbox(m.ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	_, removed := m.RemovePodSandbox(m.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
	return errors.Join(stop, remove, stopped, removed)
}

// manyBare makes so many pods, as many at once as the agent makes.
func (m *machine) manyBare(count int, s shape) (begun time.Time, pods []*bare, err error) {
	pods = make([]*bare, count)
	errs := make([]error, count)
	next := make(chan int)
	var all sync.WaitGroup
	begun = time.Now()
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := range next {
				pods[i], errs[i] = m.up(fmt.Sprintf("p%03d", i), s)
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	all.Wait()
	return begun, pods, errors.Join(errs...)
}

// lastStart is when the last container of the server started.
func (m *machine) lastStart() (last time.Time, err error) {
	list, err := m.ListContainers(m.ctx, &cri.ListContainersRequest{})
	if err != nil {
		return last, err
	}
	for _, c := range list.GetContainers() {
		status, err := m.ContainerStatus(m.ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil {
			return last, err
		}
		if at := time.Unix(0, status.GetStatus().GetStartedAt()); at.After(last) {
			last = at
		}
	}
	return last, nil
}

// firstLine waits for the log that a pattern matches, and returns the time of its first line.
func (m *machine) firstLine(pattern string) (at time.Time, err error) {
	err = m.until("log "+pattern, 2*time.Millisecond, func() (bool, error) {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return false, err
		}
		lines, err := node.ReadLog(found[0])
		if len(lines) > 0 {
			at = lines[0].At
		}
		return len(lines) > 0, err
	})
	return at, err
}
