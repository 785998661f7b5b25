// Package oomscore reads and sets how early the kernel ends a process when memory is short.
package oomscore

import (
	"fmt"
	"os"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Get returns a process's oom_score_adj (proc(5)).
func Get(pid int) (score int, err error) {
	text, err := kernelfile.Read(file(pid))
	if err == nil {
		_, err = fmt.Sscan(text, &score)
	}
	return score, err
}

// Set sets it.
func Set(pid, score int) error { return os.WriteFile(file(pid), fmt.Append(nil, score), 0) }

func file(pid int) string { return fmt.Sprintf("/proc/%d/oom_score_adj", pid) }
