package manifest

import (
	"strings"
	"testing"
)

// B.2: every fault of an object is told at once, each with the line of its field; a field that is
// mistyped is not missing too.
func TestFaultsAndTheirLines(t *testing.T) {
	const head = "# a comment\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n"
	for name, c := range map[string]struct{ data, want string }{
		"all at once": {head + "  containers:\n  - name: app\n    imag: a\n    comand: [x]\n    ports:\n    - containerPort: 99999\n  restartPolicy: Nver\n",
			`f.yaml: document 1, pod default/web: unknown field "spec.containers[0].comand"; did you mean "command"? (line 9); ` +
				`unknown field "spec.containers[0].imag"; did you mean "image"? (line 8); ` +
				`spec.restartPolicy: "Nver": is not known (known: Always, OnFailure, Never) (line 12); ` +
				`spec.containers[0].ports[0].containerPort: 99999: must be between 1 and 65535, inclusive (line 11)`},
		"second document": {"a: 1\nkind: Namespace\napiVersion: v1\n---\n" + head + "  containers:\n  - image: a\n    name: app\n  volumes:\n  - name: v\n    emptyDr: {}\n",
			`f.yaml: document 2, pod default/web: unknown field "spec.volumes[0].emptyDr"; did you mean "emptyDir"? (line 15)`},
		"what is missing": {head + "  containers:\n  - name: one\n    image: a\n  -\n    name: app\n", `f.yaml: document 1, pod default/web: spec.containers[1].image: is required (line 10)`},
		"item of a list": {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: A_\n",
			`(line 7)`},
		"alias": {head + "  containers:\n  - &c\n    name: app\n    image: a\n    tti: true\n  - *c\n", `(line 10)`},
		"JSON":  {"{\n\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"web\"},\n\"spec\":{\"containers\":[{\"name\":\"app\",\n\"imag\":\"a\"}]}}", `did you mean "image"? (line 4)`},
	} {
		if got := refused(t, c.data, Options{}); got != c.want && (c.want[0] != '(' && c.want[0] != 'd' || !strings.Contains(got, c.want)) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
