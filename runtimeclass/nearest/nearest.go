// Package nearest finds the known word that a mistyped one most likely stands for.
package nearest

import "strings"

// Of is the known word that the fewest changes of letters make of a wrong one, "" if none of them
// is near: more than a third of the letters differ. Of two that are as near, it is the first.
func Of(wrong string, known []string) string {
	best, least := "", max(1, len(wrong)/3)+1
	for _, k := range known {
		if n := Distance(strings.ToLower(wrong), strings.ToLower(k)); n < least {
			best, least = k, n
		}
	}
	return best
}

// Distance is how many letters have to be put in, taken out or exchanged to make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
