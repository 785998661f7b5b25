package stats

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stall is how much time was lost by waiting for a resource.
type Stall struct {
	Total                time.Duration
	Avg10, Avg60, Avg300 float64 // per cent of the last 10, 60 and 300 seconds
}

// Pressure is what the kernel's pressure stall information says of one resource: the time in which some tasks waited for
// it, and the time in which all of them did.
type Pressure struct{ Some, Full Stall }

// Pressures are those of a cgroup; nil where the kernel does not keep one.
type Pressures struct{ CPU, Memory, IO *Pressure }

// Pressures reads what tasks of a cgroup and of all below it waited for. Only version 2 has it: beside version 1, only
// for cgroups whose processes the OCI runtime has put there too.
func (r *Reader) Pressures(cg string) Pressures {
	dir := filepath.Join(r.hierarchy.Unified, cg)
	if r.hierarchy.Unified == "" {
		if r.hierarchy.Hybrid == "" {
			return Pressures{}
		}
		dir = filepath.Join(r.hierarchy.Hybrid, cg)
	}
	cpu := readPressure(dir, "cpu.pressure")
	if r.hierarchy.Unified == "" && (cpu == nil || cpu.Some.Total == 0) && !populated(dir) {
		return Pressures{} // nothing has ever waited there, and nothing is there that could
	}
	return Pressures{CPU: cpu, Memory: readPressure(dir, "memory.pressure"), IO: readPressure(dir, "io.pressure")}
}

func populated(dir string) bool {
	var buf [128]byte
	events, err := readShort(filepath.Join(dir, "cgroup.events"), buf[:])
	return err == nil && strings.Contains(string(events), "populated 1")
}

func readPressure(dir, name string) *Pressure {
	var buf [256]byte
	data, err := readShort(filepath.Join(dir, name), buf[:])
	if err != nil {
		return nil // no such file, or switched off by psi=0
	}
	return parsePressure(string(data))
}

// parsePressure reads "some avg10=0.00 avg60=0.00 avg300=0.00 total=614" and the like; old kernels have no full line
// for processors.
func parsePressure(text string) *Pressure {
	var p Pressure
	found := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 5 {
			continue
		}
		stall := &p.Some
		if fields[0] == "full" {
			stall = &p.Full
		}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil
			}
			switch key {
			case "avg10":
				stall.Avg10 = n
			case "avg60":
				stall.Avg60 = n
			case "avg300":
				stall.Avg300 = n
			case "total":
				us, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					return nil
				}
				stall.Total = time.Duration(us) * time.Microsecond
			}
		}
		found = true
	}
	if !found {
		return nil
	}
	return &p
}
