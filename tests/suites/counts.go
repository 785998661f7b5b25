package suites

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// counts are how a suite's tests went, from what it says.
type counts struct {
	states       map[string]string // of the tests of a Go package
	others, left int               // passed and skipped, of critest, which counts itself
	specs        []string          // of critest, which did not pass
}

var (
	goLine = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(`)
	// what tests/critest says of a variant, and of a spec that did not pass
	critestLine = regexp.MustCompile(`^\w+: (\d+) passed(?: \(\d+ at the second attempt\))?, (\d+) failed, (\d+) skipped of \d+ specs`)
	critestSpec = regexp.MustCompile(`^(?:failed|panicked|timedout|interrupted|aborted) +(.+)$`)
)

// mark is a control character, SYN.
const mark = "\x16"

func (c *counts) line(text string) {
	// Go's form for test2json marks what the test package says, also where a program left a line
	// unfinished before it.
	if _, own, marked := strings.Cut(text, mark); marked {
		text = own
	}
	if m := goLine.FindStringSubmatch(text); m != nil {
		if c.states == nil {
			c.states = map[string]string{}
		}
		c.states[m[2]] = m[1]
		return
	}
	if m := critestLine.FindStringSubmatch(text); m != nil {
		c.others, _ = strconv.Atoi(m[1])
		c.left, _ = strconv.Atoi(m[3])
		return
	}
	if m := critestSpec.FindStringSubmatch(text); m != nil {
		c.specs = append(c.specs, m[1])
	}
}

// leaves are the tests of one state that have none below them.
func (c *counts) leaves(state string) []string {
	var names []string
	for name, s := range c.states {
		if s != state {
			continue
		}
		parent := false
		for other, of := range c.states {
			// A test that fails by itself beside passing ones below it counts too.
			parent = parent || strings.HasPrefix(other, name+"/") && (state != "FAIL" || of == "FAIL")
		}
		if !parent {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *counts) passed() int  { return c.others + len(c.leaves("PASS")) }
func (c *counts) skipped() int { return c.left + len(c.leaves("SKIP")) }

// failed are the names of what failed.
func (c *counts) failed() []string { return append(c.leaves("FAIL"), c.specs...) }
