package cgroup

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// A table finds what a map of all its lines holds.
func TestTable(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		var text strings.Builder
		want := map[string]uint64{}
		names := []string{"total", "missing", ""}
		for i := range random.IntN(40) {
			name := []string{"rss", "total_rss", "total", "rss_huge"}[random.IntN(4)] + strings.Repeat("x", i)
			value := []string{fmt.Sprint(random.Uint64()), "0", "max", "-1", "", "1 2", fmt.Sprint(random.IntN(1000))}[random.IntN(7)]
			text.WriteString(strings.TrimRight(name+" "+value, " ") + "\n")
			names = append(names, name)
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				want[name] = n
			}
		}
		for _, table := range []string{text.String(), strings.TrimSuffix(text.String(), "\n")} {
			for _, name := range names {
				n, found := Table(table).Find(name)
				if plain, there := want[name]; n != plain || found != there {
					t.Fatalf("seed %d, %q: %d, %t; want %d, %t in\n%s", seed, name, n, found, plain, there, table)
				}
			}
		}
	}
}
