package main

import (
	"slices"
	"testing"
)

// Every variant runs in one process; what hides cgroups from those after it is last in its own.
func TestShares(t *testing.T) {
	for _, tt := range []struct {
		variants []variant
		n        int
		want     []string
	}{
		{variants, 1, []string{"runc,named,websocket,own,crun"}},
		{variants, 2, []string{"runc,websocket,crun", "named,own"}},
		{variants[:1], 2, []string{"runc"}},
	} {
		if got := shares(tt.variants, tt.n); !slices.Equal(got, tt.want) {
			t.Errorf("%d processes: %q, want %q", tt.n, got, tt.want)
		}
	}
}
