// Package units writes amounts for people: the same everywhere.
package units

import "fmt"

// Bytes writes an amount of memory or disk in powers of 1024, with one digit after the point:
// "512 B", "3.4 MiB".
func Bytes(n int64) string {
	if n < 1<<10 && n > -1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, prefixes := float64(n)/(1<<10), "KMGTPE"
	for (value >= 1<<10 || value <= -1<<10) && len(prefixes) > 1 {
		value, prefixes = value/(1<<10), prefixes[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, prefixes[0])
}
