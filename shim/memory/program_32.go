//go:build arm || 386

package memory

import "debug/elf"

type header = elf.Prog32 // of the program: see elf(5)
