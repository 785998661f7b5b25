package stats

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Tasks is what the processes of a cgroup hold.
type Tasks struct {
	Processes uint64
	Files     uint64 // open file descriptors, sockets included
	Sockets   uint64
	// MaxFiles is the soft limit of open files of the first process, valid if HasMaxFiles.
	MaxFiles    uint64
	HasMaxFiles bool
}

// Tasks counts what the processes of a cgroup and of those below it hold. first is the process
// whose limits count. One that ends meanwhile is left out.
func (r *Reader) Tasks(cg string, first int) Tasks {
	var t Tasks
	pids, _ := r.mounts.Group(cg).Pids() // those that can be listed
	for _, pid := range pids {
		t.Processes++
		files, sockets := openFiles("/proc/" + strconv.Itoa(pid) + "/fd")
		t.Files += files
		t.Sockets += sockets
	}
	if text, err := kernelfile.Read("/proc/" + strconv.Itoa(first) + "/limits"); err == nil {
		t.MaxFiles, t.HasMaxFiles = maxOpenFiles(text)
	}
	return t
}

// maxOpenFiles finds the soft limit in the form of /proc/<pid>/limits, which, unlike the system
// call, may be read of every user's processes.
func maxOpenFiles(limits string) (uint64, bool) {
	_, rest, _ := strings.Cut("\n"+limits, "\nMax open files")
	for first := range strings.FieldsSeq(rest) {
		n, err := strconv.ParseUint(first, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// openFiles counts what is open in a /proc/<pid>/fd folder.
func openFiles(dir string) (files, sockets uint64) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return 0, 0
	}
	var target [64]byte
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		files++
		n, err := unix.Readlinkat(int(f.Fd()), name, target[:])
		if err == nil && strings.HasPrefix(string(target[:n]), "socket:") {
			sockets++
		}
	}
	return files, sockets
}
