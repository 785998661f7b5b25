package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// table is what people read.
type table struct {
	verdicts []verdict
	took     time.Duration
	seed     uint64
}

// name names the program and its form.
func (v *verdict) name() string {
	if v.as == folded {
		return v.title + " (folded)"
	}
	return v.title
}

// line is what is printed of a program as soon as it is known.
func (v *verdict) line() string {
	text := fmt.Sprintf("%-9s %s", v.is, v.name())
	if v.why != "" {
		text += ": " + v.why
	}
	return text
}

// kind is what a module is one of.
func (v *verdict) kind() string {
	kind, _, _ := strings.Cut(v.module, "/")
	if v.as == folded {
		kind += ", folded"
	}
	return kind
}

func (t *table) differences() int {
	n := 0
	for _, v := range t.verdicts {
		if v.is == differs {
			n++
		}
	}
	return n
}

// sum is what a kind of modules adds up to.
type sum struct {
	kind                     string
	modules, programs, tests int
	functions, moved         int
	calls                    uint64
	is                       map[string]int
	stockMilli, changedMilli int64
}

func (t *table) sums() []*sum {
	var all []*sum
	seen := map[string]bool{}
	for _, v := range t.verdicts {
		i := slices.IndexFunc(all, func(s *sum) bool { return s.kind == v.kind() })
		if i < 0 {
			i, all = len(all), append(all, &sum{kind: v.kind(), is: map[string]int{}})
		}
		s := all[i]
		s.is[v.is]++
		s.programs++
		s.tests += len(v.tests)
		s.calls += v.calls
		s.stockMilli += v.milli[0]
		s.changedMilli += v.milli[1]
		if key := v.kind() + v.module; !seen[key] {
			seen[key] = true
			s.modules++
			s.functions += v.functions
			s.moved += v.moved
		}
	}
	return all
}

// summary is a line for each kind, and the programs that are not equal.
func (t *table) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nseed %d, %v\n\n", t.seed, t.took.Round(time.Second))
	b.WriteString(t.overview())
	for _, is := range []string{differs, notAllowed, timesOut, unsteady} {
		for _, v := range t.verdicts {
			if v.is == is {
				fmt.Fprintln(&b, v.line())
			}
		}
	}
	return b.String()
}

func (t *table) overview() string {
	var b strings.Builder
	b.WriteString("| | modules | programs | tests in them | functions | rewritten | equal | unsteady | differ | time out | not built | not run |\n")
	b.WriteString("| --- |" + strings.Repeat(" ---: |", 11) + "\n")
	for _, s := range t.sums() {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", s.kind, s.modules, s.programs, s.tests,
			s.functions, s.moved, s.is[equal], s.is[unsteady], s.is[differs], s.is[timesOut]+s.is[notAllowed], s.is[notBuilt], s.is[notRun])
	}
	return b.String() + "\n"
}

// markdown is all of it: a row for each program that is a module of its own.
func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString(t.overview())
	b.WriteString("| program | | tests | passed | functions | rewritten | host calls | seconds, stock | rewritten |\n")
	b.WriteString("| --- | --- |" + strings.Repeat(" ---: |", 7) + "\n")
	for _, v := range t.verdicts {
		if v.module != v.title && v.is == equal {
			continue
		}
		passed := 0
		for _, is := range v.tests {
			if is == "PASS" {
				passed++
			}
		}
		text := v.is
		if v.why != "" {
			text += ": " + strings.ReplaceAll(v.why, "|", "\\|")
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %.1f | %.1f |\n", v.name(), text, len(v.tests), passed,
			v.functions, v.moved, v.calls, float64(v.milli[0])/1000, float64(v.milli[1])/1000)
	}
	return b.String()
}
