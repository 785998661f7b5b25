//go:build !arm && !386

package netns

import "golang.org/x/sys/unix"

const sysSetresuid = unix.SYS_SETRESUID
