package check

import "testing"

// A finding is the same in another look although processes have come and ended, and pods.
func TestKeyOfFindings(t *testing.T) {
	const what = "its supervisor 7 does not run: if the shim (among processes [8 19]) dies now, its 2 pods end"
	first := Finding{Subject: "shim of handler \"wasm\"", What: what}
	for _, c := range []struct {
		f    Finding
		same bool
	}{
		{Finding{Subject: first.Subject, What: "its supervisor 7 does not run: if the shim (among processes [8]) dies now, its 13 pods end"}, true},
		{Finding{Subject: "shim of handler \"runc\"", What: what}, false},
		{Finding{Subject: first.Subject, What: "no pod has it, but processes [8] work for it"}, false},
		{Finding{Subject: "pod 12", What: what}, false},
	} {
		if same := c.f.key() == first.key(); same != c.same {
			t.Errorf("%+v is the same: %v", c.f, same)
		}
	}
}
