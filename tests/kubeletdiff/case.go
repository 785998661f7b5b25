package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// diffCase is one manifest of testdata with what its header says:
//
//	#: wait CONDITION      until the pod's status says so; see holds. Without any step: wait ready
//	#: sleep DURATION      let time pass
//	#: stop-sandbox        stop the pod's sandbox behind the manager's back
//	#: kill CONTAINER      end a container's first process with SIGKILL
//	#: touch NAME          make the file NAME in the case's folder of the host
//	#: attempts N          what belongs to a later attempt than N is left out
//	#: differs REGEXP: ROW a difference of keys that match is the one that ROW of the table
//	                       "What differs from a kubelet" in docs/pods.md names
//
// In the manifest, REGISTRY/ is the registry's address, and path: HOST a folder of the machine.
type diffCase struct {
	name    string
	text    string // the manifest
	steps   [][]string
	differs []difference
	last    int // attempt that is compared; -1 is all
	pod     corev1.Pod
}

// difference is one that may be: keys that match may have other values on the two sides.
type difference struct {
	keys *regexp.Regexp
	row  string
}

var verbs = map[string]int{"wait": 1, "sleep": 1, "stop-sandbox": 0, "kill": 1, "touch": 1}

// readCases reads the manifests of a folder, sorted by name.
func readCases(dir string, only *regexp.Regexp) ([]diffCase, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var cases []diffCase
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if !only.MatchString(name) {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c, err := parseCase(name, string(data))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("no manifest in %s has a name like %q", dir, only)
	}
	return cases, nil
}

// parseCase reads one manifest. Its pod is named after its file, so that each case has its own.
func parseCase(name, text string) (diffCase, error) {
	c := diffCase{name: name, text: text, last: -1}
	for line := range strings.SplitSeq(text, "\n") {
		header, found := strings.CutPrefix(line, "#: ")
		if !found {
			continue
		}
		if rest, found := strings.CutPrefix(header, "differs "); found {
			d, err := parseDifference(rest)
			if err != nil {
				return c, err
			}
			c.differs = append(c.differs, d)
			continue
		}
		step := strings.Fields(header)
		if step[0] == "attempts" {
			if _, err := fmt.Sscan(step[1], &c.last); err != nil {
				return c, fmt.Errorf("read %q: %w", header, err)
			}
			continue
		}
		if n, known := verbs[step[0]]; !known || len(step) != n+1 {
			return c, fmt.Errorf("step %q is not one", header)
		}
		c.steps = append(c.steps, step)
	}
	if len(c.steps) == 0 {
		c.steps = [][]string{{"wait", "ready"}}
	}
	if err := yaml.UnmarshalStrict([]byte(text), &c.pod); err != nil {
		return c, err
	}
	if c.pod.Kind != "Pod" || c.pod.Name != name {
		return c, fmt.Errorf("kind %q, name %q: a case is a Pod that is named as its file", c.pod.Kind, c.pod.Name)
	}
	return c, nil
}

func parseDifference(text string) (difference, error) {
	pattern, row, found := strings.Cut(text, ": ")
	if !found {
		return difference{}, fmt.Errorf("%q has no row: differs REGEXP: ROW", text)
	}
	keys, err := regexp.Compile("^(" + pattern + ")$")
	return difference{keys, row}, err
}

// namespace is the pod's, with the default.
func (c diffCase) namespace() string {
	if c.pod.Namespace != "" {
		return c.pod.Namespace
	}
	return "default"
}
