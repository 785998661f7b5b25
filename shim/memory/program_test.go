package memory

import (
	"debug/elf"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The parts are what the kernel has mapped of the program without a right to write.
func TestProgramParts(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var want []part
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err == nil && strings.HasSuffix(line, " "+program+"\n") && rights[1] == '-' {
			want = append(want, part{from, to - from})
		}
	}
	if got := programParts(); len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("parts %x, mapped %x", got, want)
	}
}

// A program that the kernel may lay anywhere is found by where its headers are.
func TestPartsOfMovedProgram(t *testing.T) {
	const page, at = 4096, 100*4096 + 64
	got := partsOf([]header{
		{Type: uint32(elf.PT_PHDR), Flags: uint32(elf.PF_R), Vaddr: 64},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: 10},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Vaddr: 3*page + 8, Filesz: page},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Vaddr: 9 * page, Filesz: 10},
	}, at, page)
	if want := []part{{100 * page, page}, {103 * page, 2 * page}}; !reflect.DeepEqual(got, want) {
		t.Errorf("parts %x, want %x", got, want)
	}
}

// Memory of the program that was looked at is no longer mapped, and comes back when it is used.
func TestUnmapProgram(t *testing.T) {
	before := mappedFile(t)
	UnmapProgram()
	if after := mappedFile(t); after >= before {
		t.Errorf("%d kB of files are mapped, %d before", after, before)
	}
	GiveBack() // and goes on after it
}

func mappedFile(t *testing.T) (size int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &size); err != nil {
		t.Fatal(err)
	}
	return size
}
