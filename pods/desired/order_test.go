package desired

import (
	"strings"
	"testing"
)

// AD7: objects are in the order of the names of their files, then of their places in them,
// whichever file came first; applied ones follow by name.
func TestOrderOfObjects(t *testing.T) {
	n := newNode(t).start()
	n.put("b.yaml", pod("z", "i:1"), pod("a", "i:1"))
	n.until("the first file", n.has("pod default/z i:1 b.yaml", "pod default/a i:1 b.yaml"))
	n.put("a.yaml", pod("y", "i:1"), pod("x", "i:1"))
	for _, name := range []string{"q", "p"} {
		if _, _, err := n.Apply("f.yaml", []byte(pod(name, "i:1")), "", false); err != nil {
			t.Fatal(err)
		}
	}
	order := func() string {
		var names []string
		for _, e := range n.Objects() {
			names = append(names, e.Name)
		}
		return strings.Join(names, " ")
	}
	n.until("all are there", func() bool { return len(n.Objects()) == 6 })
	if got := order(); got != "y x z a p q" {
		t.Errorf("order %s", got)
	}
	n.start()
	if got := order(); got != "y x z a p q" {
		t.Errorf("order %s after a restart", got)
	}
}
