package cgroup

import "testing"

func TestPath(t *testing.T) {
	for _, c := range []struct {
		path    string
		systemd bool
		want    string
	}{
		{"/kubepods/pod1/abc", false, "/kubepods/pod1/abc"},
		{"/kubepods//pod1/../pod1/abc", false, "/kubepods/pod1/abc"},
		{"relative/abc", false, ""},
		{"", false, ""},
		{"kubepods.slice:sunaba:abc", true, "/kubepods.slice/sunaba-abc.scope"},
		{"kubepods-burstable-pod1_2.slice:sunaba:abc", true, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/sunaba-abc.scope"},
		{":sunaba:abc", true, "/system.slice/sunaba-abc.scope"},
		{"kubepods-pod1.slice:sunaba:abc", true, "/kubepods.slice/kubepods-pod1.slice/sunaba-abc.scope"},
		{"a.slice::abc", true, "/a.slice/-abc.scope"}, // runc's unit
		{"a.slice:x:b.slice", true, "/a.slice/b.slice"},
		{"-.slice:x:abc", true, "/x-abc.scope"},
		{"/kubepods/abc", true, ""},
		{"no/slice:x:y", true, ""},
		{"a/b.slice:x:y", true, ""},
		{"a--b.slice:x:y", true, ""},
		{".slice:x:y", true, ""},
	} {
		if got := Path(c.path, c.systemd); got != c.want {
			t.Errorf("%q, systemd %v: %q, want %q", c.path, c.systemd, got, c.want)
		}
	}
}

func TestSlice(t *testing.T) {
	for slice, want := range map[string]string{
		"-.slice": "/", "": "/", "a.slice": "/a.slice", "a-b-c.slice": "/a.slice/a-b.slice/a-b-c.slice",
	} {
		if got := Slice(slice); got != want {
			t.Errorf("%q: %q, want %q", slice, got, want)
		}
	}
}
