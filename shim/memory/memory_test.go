package memory

import "testing"

func TestProgramPart(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-0085f000 r-xp 00000000 fe:00 1234    /bin/shim":          true,
		"0085f000-00d6a000 r--p 0045f000 fe:00 1234    /bin/shim":          true,
		"00d6a000-00da2000 rw-p 0096a000 fe:00 1234    /bin/shim":          false,
		"00d6a000-00da2000 r--s 0096a000 fe:00 1234    /bin/shim":          false,
		"00400000-0085f000 r-xp 00000000 fe:00 1234    /bin/other":         false,
		"00da2000-02ddc000 r-xp 00000000 00:00 0":                          false,
		"7ffd53297000-7ffd532b8000 rw-p 00000000 00:00 0          [stack]": false,
	} {
		p, ok := programPart(line, "/bin/shim")
		if ok != want || ok && p.length == 0 {
			t.Errorf("%q: %v, %v", line, p, ok)
		}
	}
	if len(programParts()) == 0 {
		t.Error("this program has no parts")
	}
	GiveBack() // and goes on after it
}
