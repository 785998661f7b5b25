package state

import (
	"os"
	"path/filepath"
	"testing"
)

// Read finds what a store would, while the store is open, and changes nothing.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Create("aa11", sandbox("aa11")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"bb22.json": "}", "ee55.json": `{"version":1,"reco`, ".cc33.json.tmp-1": "x", "dd44.json.damaged": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		l, err := Read(dir, CheckSandbox)
		if err != nil || len(l.Records) != 1 || l.Records["aa11"].ID != "aa11" {
			t.Fatalf("%+v, %v", l, err)
		}
		if len(l.Damaged) != 2 || l.Damaged["bb22.json"] == "" || l.Damaged["dd44.json.damaged"] == "" || len(l.Unfinished) != 2 {
			t.Errorf("%+v", l)
		}
	}
	if l, err := Read(filepath.Join(dir, "none"), CheckSandbox); err != nil || len(l.Records) != 0 {
		t.Errorf("a folder that is not there: %+v, %v", l, err)
	}
}
