package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// deviceNames knows what block devices are called. It remembers the answers.
type deviceNames struct{ names sync.Map }

// name is a device's path, such as /dev/sda; its number where it has none.
func (n *deviceNames) name(major, minor uint64) string {
	number := fmt.Sprintf("%d:%d", major, minor)
	if name, ok := n.names.Load(number); ok {
		return name.(string)
	}
	target, err := os.Readlink("/sys/dev/block/" + number)
	if err != nil {
		return number // it may get one
	}
	name := "/dev/" + filepath.Base(target)
	n.names.Store(number, name)
	return name
}
