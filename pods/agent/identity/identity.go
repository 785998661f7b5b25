// Package identity makes and keeps the names and numbers that the agent gives out: its own mark,
// the UIDs of pods and their ranges of user ids.
package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

const markFile = "agent"

// Mark is the agent's mark, kept in the file "agent" of a folder that exists. The first call makes
// it.
//
// # Errors
//
// ErrDataLoss for a file that holds something else: what carries the old mark would be unowned.
func Mark(dir string) (string, error) {
	path := filepath.Join(dir, markFile)
	data, err := regular.Read(path, 128)
	if errors.Is(err, fs.ErrNotExist) {
		mark := UID()
		return string(mark), durable.Write(path, append([]byte(mark), '\n'), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("read the agent's mark: %w", err)
	}
	mark := string(bytes.TrimSpace(data))
	if len(mark) != 36 {
		return "", fmt.Errorf("read the agent's mark: %q holds %q: %w", path, mark, errdefs.ErrDataLoss)
	}
	return mark, nil
}

// Since is when the mark of a folder was made.
func Since(dir string) (time.Time, error) {
	info, err := os.Stat(filepath.Join(dir, markFile))
	if err != nil {
		return time.Time{}, fmt.Errorf("find the time of the agent's mark: %w", err)
	}
	return info.ModTime(), nil
}

const bootFile = "boot"

// maxBoot bounds what is read of a boot's id, in bytes.
const maxBoot = 128

// LastBoot is the boot that NoteBoot wrote into a folder last, "" if it never did.
func LastBoot(dir string) (string, error) {
	data, err := regular.Read(filepath.Join(dir, bootFile), maxBoot)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the last boot: %w", err)
	}
	return string(bytes.TrimSpace(data)), nil
}

// NoteBoot keeps the id of a boot in a folder.
func NoteBoot(dir, id string) error {
	if err := durable.Write(filepath.Join(dir, bootFile), []byte(id+"\n"), 0o600); err != nil {
		return fmt.Errorf("note boot: %w", err)
	}
	return nil
}

// UID is a new random UUID of version 4 (RFC 9562).
func UID() types.UID {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return types.UID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}
