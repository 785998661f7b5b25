//go:build arm || 386

package netns

import "golang.org/x/sys/unix"

// sysSetresuid: the plain call takes ids of 16 bits here.
const sysSetresuid = unix.SYS_SETRESUID32
