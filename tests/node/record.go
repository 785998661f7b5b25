package node

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// RecordFile returns the file of a record of the daemon. kind is the folder: "sandboxes" or
// "containers".
func (n *Node) RecordFile(kind, id string) (string, error) {
	files, err := filepath.Glob(filepath.Join(n.Root, "state", kind, "record-*.json"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(`"id":"`+id+`","record":`)) {
			return file, nil
		}
	}
	return "", fmt.Errorf("none of %q has the record %q", files, id)
}

// FreeRecord says whether a file waits for a record of the daemon: it is nothing left over.
func FreeRecord(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0 && strings.HasPrefix(info.Name(), "record-")
}
