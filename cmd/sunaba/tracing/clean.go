package tracing

import (
	"strings"
	"unicode/utf8"
)

// Bounds of texts, in bytes: names, and errors.
const (
	maxText  = 256
	maxError = 512
	// maxRead is how much of a text is looked at.
	maxRead = 4096
)

// clean bounds a text that may be a stranger's, and removes the queries and the users of addresses
// in it: a registry's signed address is as good as a password until it expires.
func clean(text string, most int) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxRead)], "\uFFFD")
	if strings.ContainsAny(text, "?@") {
		text = cleanAddresses(text)
	}
	if len(text) <= most {
		return text
	}
	const more = "…"
	end := most - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// ends are the characters that an address ends with in a sentence.
const ends = " \t\r\n\"'<>`"

// cleanAddresses leaves out what stands in each word behind a question mark, and of those that are
// addresses the user.
func cleanAddresses(text string) string {
	var out strings.Builder
	for text != "" {
		end := strings.IndexAny(text, ends)
		if end < 0 {
			end = len(text)
		}
		out.WriteString(cleanWord(text[:end]))
		out.WriteString(text[end:min(end+1, len(text))])
		text = text[min(end+1, len(text)):]
	}
	return out.String()
}

func cleanWord(word string) string {
	if path, query, found := strings.Cut(word, "?"); found && strings.Contains(query, "=") {
		word = path + "?…"
	}
	scheme, rest, found := strings.Cut(word, "://")
	if !found {
		return word
	}
	host, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = "…" + host[at:]
	}
	if slash {
		host += "/"
	}
	return scheme + "://" + host + path
}
