package main

import (
	"encoding/json"
	"fmt"
)

// overhead is what inspectp says of one pod.
type overhead struct {
	handler            string
	declared, measured int64 // bytes
	cpu                int64 // nanoseconds
}

// inspectPod shows the declared and the measured overhead of a pod side by side.
func (d *demo) inspectPod(id, handler string) error {
	out, err := d.quiet(d.crictlPath, []string{"inspectp", id})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, " $ crictl inspectp %s   (declared and measured overhead)\n", d.short(id))
	o, err := readOverhead(out)
	if err != nil {
		return err
	}
	o.handler = handler
	d.say("declared %.1f MiB, measured %.1f MiB and %.0f ms of CPU", float64(o.declared)/(1<<20), float64(o.measured)/(1<<20), float64(o.cpu)/1e6)
	if o.declared == 0 || o.measured == 0 {
		return fmt.Errorf("the declared or the measured overhead is missing in %s", out)
	}
	d.overheads = append(d.overheads, o)
	return nil
}

// readOverhead finds the overhead in crictl's output.
func readOverhead(out string) (overhead, error) {
	var answer struct {
		Info struct {
			Overhead struct {
				Declared struct {
					MemoryBytes int64 `json:"memoryBytes"`
				} `json:"declared"`
				Measured struct {
					MemoryBytes    int64 `json:"memoryBytes"`
					CPUNanoseconds int64 `json:"cpuNanoseconds"`
				} `json:"measured"`
			} `json:"overhead"`
		} `json:"info"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return overhead{}, fmt.Errorf("read the answer of crictl inspectp: %w", err)
	}
	o := answer.Info.Overhead
	return overhead{declared: o.Declared.MemoryBytes, measured: o.Measured.MemoryBytes, cpu: o.Measured.CPUNanoseconds}, nil
}
