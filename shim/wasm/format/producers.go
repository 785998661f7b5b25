package format

import "strings"

// Producers reads the content of the producers section: by field, names with their versions.
func Producers(content []byte) map[string][]string {
	all := map[string][]string{}
	r := Reader{Rest: content}
	for range r.Number() {
		field := string(r.Bytes())
		for range r.Number() {
			value := strings.TrimSpace(string(r.Bytes()) + " " + string(r.Bytes()))
			if r.Bad {
				return all
			}
			all[field] = append(all[field], value)
		}
		if r.Bad {
			return all
		}
	}
	return all
}
