package boot

import (
	"regexp"
	"testing"
)

func TestID(t *testing.T) {
	id, err := ID()
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("id %q, %v", id, err)
	}
	if again, err := ID(); err != nil || again != id {
		t.Errorf("id %q is another one the second time: %q, %v", id, again, err)
	}
}
