package usage

import (
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Stall is how much time was lost by waiting for a resource.
type Stall struct {
	Total                time.Duration
	Avg10, Avg60, Avg300 float64 // per cent of the last 10, 60 and 300 seconds
}

// Pressure is the kernel's pressure stall information of one resource: the time in which some tasks
// waited for it, and the time in which all of them did.
type Pressure struct {
	Some, Full Stall
	HasFull    bool // old kernels do not count it for processors
}

// Pressures are those of a cgroup; nil where the kernel does not keep one.
type Pressures struct{ CPU, Memory, IO *Pressure }

// Pressures reads what tasks of a cgroup and of all below it waited for. Only version 2 has it:
// beside version 1, only for cgroups whose processes the OCI runtime has put there too.
func (r *Reader) Pressures(cg string) Pressures {
	g := r.mounts.Group(cg)
	dir := g.Dir("")
	if !g.Unified() {
		if r.mounts.Hybrid == "" {
			return Pressures{}
		}
		dir = r.mounts.Hybrid + g.Path()
	}
	cpu := ReadPressure(dir, "cpu")
	if !g.Unified() && (cpu == nil || cpu.Some.Total == 0 && !populated(dir)) {
		return Pressures{} // nothing has ever waited there, and nothing is there that could
	}
	return Pressures{CPU: cpu, Memory: ReadPressure(dir, "memory"), IO: ReadPressure(dir, "io")}
}

func populated(dir string) bool {
	events, err := kernelfile.ReadRecord(dir + "/cgroup.events")
	return err == nil && strings.Contains(events, "populated 1")
}

// ReadPressure reads the pressure on a resource, "cpu", "memory" or "io", from a cgroup's
// directory; nil if the kernel does not keep it, or does not with psi=0.
func ReadPressure(dir, resource string) *Pressure {
	text, err := kernelfile.ReadRecord(dir + "/" + resource + ".pressure")
	if err != nil {
		return nil
	}
	return parsePressure(text)
}

// parsePressure reads "some avg10=0.00 avg60=0.00 avg300=0.00 total=614" and the like; old kernels
// have no full line for processors.
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
			stall, p.HasFull = &p.Full, true
		}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseFloat(value, 64)
			if key == "total" {
				var us int64
				us, err = strconv.ParseInt(value, 10, 64)
				stall.Total = time.Duration(us) * time.Microsecond
			}
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
			}
		}
		found = true
	}
	if !found {
		return nil
	}
	return &p
}
