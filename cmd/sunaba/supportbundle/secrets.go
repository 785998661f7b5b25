package supportbundle

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// secrets are the values that were removed from documents. They are removed from texts, as far as a
// text shows where they are:
//
//   - values of eight bytes and more wherever they stand, and their starts of four bytes and more
//     where a line or "…" cuts them off;
//   - shorter ones where they stand as a word;
//   - not those below four bytes, numbers below six digits, and what documents show elsewhere.
type secrets struct {
	values map[string]bool
	shown  map[string]bool
	bytes  int
	// blind is why not all of them are known, "" if they are: then no text is shown.
	blind string

	// index has the forms in which they are looked for by their first bytes.
	index map[[shortest]byte][]form
}

// form is how a text may have a value.
type form struct {
	text string
	open bool // what follows may be a part of the same word
}

const (
	shortest    = 4        // bytes of a value that is removed from texts
	anywhere    = 8        // bytes of a value that is removed within words too
	shortNumber = 6        // digits of a number that is removed
	maxSecrets  = 32 << 20 // bytes of all values together
)

func newSecrets(blind string) *secrets {
	// What flags often have, and words that every log has, is not secret.
	return &secrets{blind: blind, values: map[string]bool{}, shown: words("true false null none info warn error debug INFO WARN ERROR DEBUG sunaba")}
}

// show keeps a value in texts: documents show it anyway.
func (s *secrets) show(text string) {
	if s.index == nil {
		s.shown[text] = true
	}
}

// add adds a value: as a whole, its lines and words, what follows "=", the user and password of a
// URL, and what it stands for in base64 and in JSON.
func (s *secrets) add(text string) {
	if s.index != nil {
		return
	}
	s.text(text)
	if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil && utf8.Valid(decoded) {
		s.text(string(decoded))
		if _, password, ok := strings.Cut(string(decoded), ":"); ok {
			s.put(password)
		}
		text = string(decoded)
	}
	var doc any
	if strings.HasPrefix(strings.TrimSpace(text), "{") && json.Unmarshal([]byte(text), &doc) == nil {
		(&redactor{secrets: s}).document(doc)
	}
}

var userinfo = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`://([^/@\s"']+)@`) })

func (s *secrets) text(text string) {
	s.put(text)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		s.put(line)
		if _, after, ok := strings.Cut(line, "="); ok {
			s.put(strings.Trim(after, `"'`))
		}
		for _, found := range userinfo().FindAllStringSubmatch(line, -1) {
			user, password, _ := strings.Cut(found[1], ":")
			s.put(user)
			s.put(password)
		}
	}
	for _, word := range split(text) {
		if len(word) >= anywhere {
			s.put(word)
		}
	}
}

// raw adds all words of a file that is no document, and the rest of each line after its key.
func (s *secrets) raw(data []byte) {
	s.text(string(data))
	for _, word := range split(string(data)) {
		if !recordKeys[strings.TrimSuffix(word, ":")] {
			s.add(word)
		}
	}
}

func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || strings.ContainsRune("\"'`=,;{}[]()<>&|", r) })
}

func (s *secrets) put(value string) {
	value = strings.TrimSpace(value)
	if len(value) < shortest || len(value) < shortNumber && strings.Trim(value, "0123456789") == "" || s.values[value] || s.blind != "" || s.index != nil {
		return
	}
	if s.bytes += len(value); s.bytes > maxSecrets {
		s.blind = "there are too many values that must not be in it"
		return
	}
	s.values[value] = true
}

// seal makes the index. What is added later is ignored.
func (s *secrets) seal() {
	s.index = map[[shortest]byte][]form{}
	for value := range s.values {
		if s.shown[value] || s.blind != "" {
			continue
		}
		for _, f := range forms(value) {
			first := [shortest]byte([]byte(f.text))
			s.index[first] = append(s.index[first], f)
		}
	}
}

// forms are how a text may have a value: as it is, quoted, quoted twice, in JSON, in a URL, in
// base64 alone or before something else.
func forms(value string) []form {
	inner := func(quoted string) string { return quoted[1 : len(quoted)-1] }
	once := inner(strconv.Quote(value))
	inJSON, _ := json.Marshal(value) // a text always encodes
	all := map[form]bool{}
	for _, text := range []string{value, once, inner(strconv.Quote(once)), inner(string(inJSON)), url.QueryEscape(value), url.PathEscape(value)} {
		all[form{text, false}] = true
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		encoded := e.EncodeToString([]byte(value))
		all[form{encoded, true}] = true
		if groups := len(value) / 3 * 4; groups >= anywhere {
			all[form{encoded[:groups], true}] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// patterns are what may be secret in texts and on no record, such as what belongs to a pod that was
// deleted, or to a record that cannot be decoded: an error of a decoder quotes it.
var patterns = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`(://)[^/@\s"']+@`),
		regexp.MustCompile(`(?i)((?:password|passwd|secret|token|api[_-]?key)["'\\]*\s*[=:]\s*["'\\]*|\b(?:bearer|basic)\s+)[^\s"'\\,;()]+`),
		regexp.MustCompile(`((?:parse|read pod|damaged) record\b).*`),
	}
})

// clean returns a text without secrets, and how many were in it.
func (s *secrets) clean(text string) (string, int) {
	if s.index == nil || s.blind != "" {
		return removed, 1
	}
	var b strings.Builder
	from, count := 0, 0
	for at := 0; at+shortest <= len(text); {
		n := s.match(text, at)
		if n == 0 {
			at++
			continue
		}
		b.WriteString(text[from:at])
		b.WriteString(removed)
		count++
		at += n
		from = at
	}
	b.WriteString(text[from:])
	cleaned := b.String()
	for _, p := range patterns() {
		count += len(p.FindAllStringIndex(cleaned, -1))
		cleaned = p.ReplaceAllString(cleaned, "${1}"+removed)
	}
	return cleaned, count
}

// match returns how many bytes of the text at a position are to be removed.
func (s *secrets) match(text string, at int) int {
	longest := 0
	for _, f := range s.index[[shortest]byte([]byte(text[at:at+shortest]))] {
		n := shortest
		for n < len(f.text) && at+n < len(text) && text[at+n] == f.text[n] {
			n++
		}
		rest := text[at+n:]
		within := at > 0 && inWord(text[at-1]) || !f.open && rest != "" && inWord(rest[0])
		whole := n == len(f.text) && (n >= anywhere || !within)
		cut := n < len(f.text) && (rest == "" || rest[0] == '\n' || strings.HasPrefix(rest, "…") || strings.HasPrefix(rest, "..."))
		if n > longest && (whole || cut) {
			longest = n
		}
	}
	return longest
}

// inWord says whether a byte is one of a word: a letter of English, a digit or "_".
func inWord(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z'
}
