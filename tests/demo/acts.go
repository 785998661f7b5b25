package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/leftovers"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// packImages builds the two examples for every platform and pushes them as indexes.
func (d *demo) packImages() error {
	d.heading("Two programs, each built for linux/amd64, linux/arm64 and wasip1/wasm, each one image index")
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		return err
	}
	d.registry = registry
	for name, ref := range map[string]*string{"greeter": &d.greeter, "batch": &d.batch} {
		index, err := oci.ExampleIndex(d.ctx, "examples/"+name, name)
		if err != nil {
			return err
		}
		if *ref, err = registry.PushIndex(d.ctx, "sunaba/"+name+":v1", index); err != nil {
			return err
		}
		if err := d.showIndex(*ref, index); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) showIndex(ref string, index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	d.say("%s: %s", ref, strings.Join(platforms, ", "))
	return nil
}

// startNode starts a daemon with everything of its own below the demo's folder.
func (d *demo) startNode() error {
	d.heading("sunaba serve")
	if err := os.WriteFile(d.path("crictl.yaml"), nil, 0o600); err != nil {
		return err
	}
	begin := time.Now()
	dir := d.path("node")
	n, err := node.Start(d.ctx, node.Options{Bin: d.bin, Dir: dir, Config: fmt.Sprintf("[network]\nconf_dir = %q\n%s", filepath.Join(dir, "cni"), measure.OwnHandlers)})
	if err != nil {
		return err
	}
	d.node = n
	d.say("ready after %d ms on %s", time.Since(begin).Milliseconds(), d.short(d.socket()))
	out, err := d.crictl("version")
	if err != nil {
		return err
	}
	return expect("crictl version", out, "sunaba")
}

// pullOnce pulls each reference once. crictl never sends a handler.
func (d *demo) pullOnce() error {
	d.heading("Each reference is pulled once; every handler finds its variant")
	for _, ref := range []string{d.greeter, d.batch} {
		if _, err := d.crictl("pull", ref); err != nil {
			return err
		}
	}
	_, err := d.crictl("images")
	return err
}

// oneHandler runs the server and the job in one pod of a handler.
func (d *demo) oneHandler(handler string) error {
	d.heading("The same references under RuntimeClass handler %q", handler)
	platform := "wasip1/wasm"
	if handler == "runc" {
		platform = oci.Host().String()
	}
	pod, err := d.writePod(handler)
	if err != nil {
		return err
	}
	id, err := d.crictl("runp", "--runtime", handler, pod)
	if err != nil {
		return err
	}
	ip, err := d.address(id)
	if err != nil {
		return err
	}
	server, err := d.startContainer(id, pod, "greeter", map[string]any{
		"metadata": map[string]any{"name": "greeter"}, "image": map[string]any{"image": d.greeter},
		"envs": []any{map[string]any{"key": "GREETING", "value": "Hello"}}, "log_path": "greeter.log", "linux": map[string]any{"security_context": ownProcesses},
	})
	if err != nil {
		return err
	}
	answer, err := d.show("curl", "curl", []string{"-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "0", "--retry-max-time", "10", "http://" + ip + ":8080/"})
	if err != nil {
		return err
	}
	if err := expect("the pod's answer", answer, "Hello from "+platform+" on demo-"+handler); err != nil {
		return err
	}
	job, err := d.startContainer(id, pod, "batch", map[string]any{
		"metadata": map[string]any{"name": "batch"}, "image": map[string]any{"image": d.batch},
		"args": []string{"-primes", "100000", "-exit", "7"}, "log_path": "batch.log", "linux": map[string]any{"security_context": ownProcesses},
	})
	if err != nil {
		return err
	}
	if err := d.checkJob(job, platform); err != nil {
		return err
	}
	if err := d.inspectPod(id, handler); err != nil {
		return err
	}
	logs, err := d.crictl("logs", server)
	if err != nil {
		return err
	}
	if err := expect("the server's log", logs, "GET /"); err != nil {
		return err
	}
	for _, args := range [][]string{{"stop", server}, {"ps", "-a"}, {"stopp", id}, {"rmp", id}} {
		if _, err := d.crictl(args...); err != nil {
			return err
		}
	}
	left, err := d.crictl("pods", "-q")
	if err == nil && left != "" {
		err = fmt.Errorf("pods are left: %s", left)
	}
	return err
}

// ownProcesses gives every container a process namespace of its own.
var ownProcesses = map[string]any{"namespace_options": map[string]any{"pid": 1}}

// writePod writes the pod's configuration for crictl, with the overhead of
// examples/runtimeclasses.yaml.
func (d *demo) writePod(handler string) (string, error) {
	overhead := map[string]int64{"runc": 8 << 20, "wasm": 16 << 20}[handler]
	return d.write("pod-"+handler+".json", map[string]any{
		"metadata": map[string]any{"name": "demo-" + handler, "namespace": "default", "uid": "demo-" + handler},
		"hostname": "demo-" + handler, "log_directory": d.path("logs/" + handler),
		"port_mappings": []any{map[string]any{"protocol": 0, "container_port": 8080}},
		"linux": map[string]any{
			"overhead":  map[string]any{"memory_limit_in_bytes": overhead, "cpu_quota": 1000, "cpu_period": 100000},
			"resources": map[string]any{"memory_limit_in_bytes": 128 << 20},
			// As the kubelet asks for by default; 0, which crictl sends, is a process namespace for
			// the whole pod.
			"security_context": ownProcesses,
		},
	})
}

// write writes a JSON file into the demo's folder.
func (d *demo) write(name string, content any) (string, error) {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return "", err
	}
	return d.path(name), os.WriteFile(d.path(name), data, 0o600)
}

func (d *demo) startContainer(pod, podFile, name string, config map[string]any) (string, error) {
	file, err := d.write(name+".json", config)
	if err != nil {
		return "", err
	}
	id, err := d.crictl("create", pod, file, podFile)
	if err != nil {
		return "", err
	}
	_, err = d.crictl("start", id)
	return id, err
}

// address is the pod's address as crictl shows it.
func (d *demo) address(id string) (string, error) {
	return d.crictl("inspectp", "-o", "go-template", "--template", "{{.status.network.ip}}", id)
}

// checkJob waits for the job's end and checks its exit code and its log.
func (d *demo) checkJob(id, platform string) error {
	template := []string{"inspect", "-o", "go-template", "--template", "{{.status.state}} {{.status.exitCode}} {{.status.reason}}", id}
	for {
		state, err := d.quiet(d.crictlPath, template)
		if err != nil {
			return err
		}
		if strings.HasPrefix(state, "CONTAINER_EXITED") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	state, err := d.crictl(template...)
	if err != nil {
		return err
	}
	if err := expect("the job's end", state, "CONTAINER_EXITED 7 Error"); err != nil {
		return err
	}
	logs, err := d.crictl("logs", id)
	if err != nil {
		return err
	}
	return expect("the job's log", logs, "batch: running as "+platform+"\nbatch: 9592 primes below 100000\n")
}

// podManifest runs examples/batch-pod.yaml with one command.
func (d *demo) podManifest() error {
	d.heading("One Pod manifest, one command: sunaba run")
	data, err := os.ReadFile("examples/batch-pod.yaml")
	if err != nil {
		return err
	}
	const published = "localhost:5000/sunaba/batch:v1"
	if err := expect("examples/batch-pod.yaml", string(data), published); err != nil {
		return err
	}
	manifest := d.path("batch-pod.yaml")
	if err := os.WriteFile(manifest, []byte(strings.Replace(string(data), published, d.batch, 1)), 0o600); err != nil {
		return err
	}
	out, err := d.show("sunaba", filepath.Join(d.bin, "sunaba"), []string{"run", "--socket", d.socket(), "--runtimeclass", "examples/runtimeclasses.yaml", manifest})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		return fmt.Errorf("sunaba run ended with %v, want exit code 7", err)
	}
	d.say("(exit code 7)")
	return expect("what the pod said", out, "primes below 100000")
}

// figures prints the overheads and the measured times.
func (d *demo) figures() error {
	d.heading("What a pod costs here")
	w := tabwriter.NewWriter(d.out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "handler\tdeclared overhead, MiB\tmeasured, MiB\tCPU so far, ms")
	for _, o := range d.overheads {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.0f\n", o.handler, float64(o.declared)/(1<<20), float64(o.measured)/(1<<20), float64(o.cpu)/1e6)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	workloads, err := measure.Workloads(d.ctx, d.registry, d.node, "examples/c/guest.c")
	if err != nil {
		return err
	}
	var results []measure.Result
	for _, workload := range workloads {
		times, err := measure.Pods(d.ctx, d.node, workload, 15, nil)
		if err != nil {
			return err
		}
		memory, err := measure.IdleMemory(d.ctx, d.node, workload, 5)
		if err != nil {
			return err
		}
		results = append(results, measure.Result{Workload: workload, Times: times, Memory: memory})
	}
	d.say("")
	d.say("medians of 15 pods one after another; goals beside them, ! where one was missed")
	fmt.Fprintln(d.out)
	d.missed, err = measure.Print(d.out, results)
	return err
}

// clean ends the daemon and the registry, looks for what is left and removes the folder.
func (d *demo) clean() error {
	var problems []error
	if d.node != nil {
		if err := d.node.RemovePods(d.ctx); err != nil {
			problems = append(problems, err)
		}
		forced, err := d.node.Close()
		if err != nil {
			problems = append(problems, err)
		}
		if len(forced) > 0 {
			problems = append(problems, fmt.Errorf("left after the daemon's end:\n%s", strings.Join(forced, "\n")))
		}
	}
	if d.registry != nil {
		problems = append(problems, d.registry.Close())
	}
	if d.dir == "" {
		return errors.Join(problems...)
	}
	found, err := leftovers.Take(leftovers.Scope{Dirs: []string{d.dir}, SkipFile: func(string) bool { return true }})
	if err != nil {
		problems = append(problems, err)
	}
	if len(found) > 0 {
		return errors.Join(append(problems, fmt.Errorf("left:\n%s", strings.Join(found, "\n")))...)
	}
	return errors.Join(append(problems, os.RemoveAll(d.dir))...)
}
