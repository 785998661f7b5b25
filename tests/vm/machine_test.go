package main

import "testing"

func TestVirtualizes(t *testing.T) {
	for _, c := range []struct {
		info string
		want bool
	}{
		{"processor\t: 0\nflags\t\t: fpu vmx sse\n\nprocessor\t: 1\nflags\t\t: fpu\n", true},
		{"flags : fpu svm\n", true},
		{"model name : svm\nflags : fpu vmmcall svm_lock\n", false},
		{"", false},
	} {
		if got := virtualizes(c.info); got != c.want {
			t.Errorf("%q: %v", c.info, got)
		}
	}
}
