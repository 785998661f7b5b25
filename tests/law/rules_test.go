package law

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// podRules are how many rules the reference of pods from manifests has of each kind. A test names
// each of them; this law does not see whether it fails without the rule.
var podRules = map[string]int{
	"AD": 18, "PH": 12, "ST": 11, "CO": 10, "RS": 10, "BO": 10, "SB": 6, "SO": 4, "IN": 10, "SC": 8, "EP": 6, "PR": 27, "HK": 14, "TM": 14, "IM": 14, "EV": 12,
	"VO": 25, "SE": 13, "RE": 20, "NW": 10, "DL": 6, "SA": 3, "RB": 8, "EX": 11, "GC": 5, "LG": 3, "SD": 9, "NC": 4,
}

// laterRules are those of stages to come.
var laterRules = map[string]bool{"AD8": true, "NC4": true, "RS8": true, "SD4": true, "EX2": true}

var ruleName = regexp.MustCompile(`\b([A-Z]{2})([0-9]{1,2})(?:(?:–| to )(?:[A-Z]{2})?([0-9]{1,2}))?\b`)

func TestRulesOfPodsHaveATest(t *testing.T) {
	named := map[string]bool{}
	for _, dir := range []string{"pods", "cmd/sunaba", "tests", "criserver"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || path == "../../tests/law/rules_test.go" || !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "/testdata/") {
				return err
			}
			data, err := os.ReadFile(path)
			for _, found := range ruleName.FindAllStringSubmatch(string(data), -1) {
				first, _ := strconv.Atoi(found[2])
				last, _ := strconv.Atoi(found[3])
				for i := first; i <= max(first, min(last, first+30)); i++ {
					named[fmt.Sprint(found[1], i)] = podRules[found[1]] > 0
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for kind, count := range podRules {
		for i := range count {
			if rule := fmt.Sprint(kind, i+1); !named[rule] && !laterRules[rule] {
				t.Errorf("no test names rule %s", rule)
			}
		}
	}
}
