package desired

import "testing"

// B.2: objects change places between files, one file after the other. A file whose new content
// waits for an object of another one does not keep what it no longer has.
func TestObjectsThatChangePlaces(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.put("b.yaml", pod("b", "i:1"))
	n.put("c.yaml", pod("c", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml", "pod default/b i:1 b.yaml", "pod default/c i:1 c.yaml"))
	n.put("a.yaml", pod("b", "i:1"))
	n.until("the first of two waits", n.is("a.yaml", Refused, "pod default/b: stands in b.yaml already"))
	if !n.has("pod default/a i:1 a.yaml", "pod default/b i:1 b.yaml", "pod default/c i:1 c.yaml")() {
		t.Errorf("objects %v", n.have())
	}
	n.put("b.yaml", pod("a", "i:1"))
	n.until("two have changed places", n.has("pod default/b i:1 a.yaml", "pod default/a i:1 b.yaml", "pod default/c i:1 c.yaml"))
	n.until("the first is loaded", n.is("a.yaml", Loaded, ""))
	n.until("the second is loaded", n.is("b.yaml", Loaded, ""))

	n.put("a.yaml", pod("a", "i:2"))
	n.put("b.yaml", pod("c", "i:2"))
	n.until("two of three wait", n.is("b.yaml", Refused, "pod default/c: stands in c.yaml already"))
	n.put("c.yaml", pod("b", "i:2"))
	places := n.has("pod default/a i:2 a.yaml", "pod default/c i:2 b.yaml", "pod default/b i:2 c.yaml")
	n.until("three have changed places", places)
	n.start()
	if !places() {
		t.Errorf("after a restart: %v", n.have())
	}
	n.until("loaded again", n.is("a.yaml", Loaded, ""))
}

// A file that is refused for what is wrong in it keeps all of its last good version.
func TestRefusedFileKeepsItsObjects(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.put("b.yaml", pod("b", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml", "pod default/b i:1 b.yaml"))
	n.put("a.yaml", pod("b", "i:1"))
	n.until("it waits", n.is("a.yaml", Refused, "stands in b.yaml already"))
	n.put("a.yaml", "kind: [\n")
	n.until("it is wrong", n.is("a.yaml", Refused, "yaml"))
	n.put("c.yaml", pod("a", "i:2"))
	n.until("its object is not taken", n.is("c.yaml", Refused, "pod default/a: stands in a.yaml already"))
	if !n.has("pod default/a i:1 a.yaml", "pod default/b i:1 b.yaml")() {
		t.Errorf("objects %v", n.have())
	}
}
