package podcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/pods/api"
)

// What kubectl prints is recorded: `make kubectl-diff` asks a real one again.
var (
	kubectlFlag = flag.String("kubectl", "", "record what this kubectl prints")
	differsFlag = flag.Bool("differs", false, "write what is printed here into differs.txt; reasons are written by hand")
	tablesFlag  = flag.String("tables", "", "the API server of tests/tools-kubelet/tables, for -kubectl")
)

// said is what a command line printed, as one text: lines of standard output after "| ", those of
// standard error and the error after "! ".
type said struct{ line, reason, text string }

// B.5, B.6: the same objects and the same command line print what kubectl 1.36 prints. Where they
// differ, testdata/differs.txt has what is printed here, and why.
func TestKubectl(t *testing.T) {
	recorded, differs := read(t, "kubectl.txt"), read(t, "differs.txt")
	if *kubectlFlag != "" {
		recorded = record(t)
		write(t, "kubectl.txt", recorded)
	}
	update := *kubectlFlag != "" || *differsFlag
	var still []said
	for n, line := range lines(t) {
		if n >= len(recorded) || recorded[n].line != line {
			t.Fatalf("%s is not recorded: make kubectl-diff", line)
		}
		at := slices.IndexFunc(differs, func(s said) bool { return s.line == line })
		t.Run(line, func(t *testing.T) {
			got := ours(t, line)
			switch {
			case got == recorded[n].text && at >= 0:
				if !update {
					t.Error("differs no longer: remove it from differs.txt")
				}
				return
			case got == recorded[n].text:
				return
			case at < 0:
				t.Errorf("printed\n%s\nkubectl prints\n%s", got, recorded[n].text)
			case differs[at].reason == "":
				t.Error("differs.txt has no reason")
			case got != differs[at].text && !update:
				t.Errorf("printed\n%s\nwant\n%s", got, differs[at].text)
			}
			s := said{line: line, text: got}
			if at >= 0 {
				s.reason = differs[at].reason
			}
			still = append(still, s)
		})
	}
	for _, s := range differs {
		if !slices.ContainsFunc(recorded, func(r said) bool { return r.line == s.line }) {
			t.Errorf("differs.txt has %q, which is not in lines.txt", s.line)
		}
	}
	if update {
		write(t, "differs.txt", still)
	}
}

func lines(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func read(t *testing.T, name string) (all []said) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		if *kubectlFlag != "" && os.IsNotExist(err) {
			return nil
		}
		t.Fatal(err)
	}
	reason := ""
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		switch line := s.Text(); {
		case strings.HasPrefix(line, "# "):
			reason = line[2:]
		case strings.HasPrefix(line, "$ "):
			all = append(all, said{line: line[2:], reason: reason})
		case line == "":
			reason = ""
		default:
			all[len(all)-1].text += line + "\n"
		}
	}
	return all
}

func write(t *testing.T, name string, all []said) {
	t.Helper()
	var b strings.Builder
	for n, s := range all {
		if n > 0 {
			b.WriteByte('\n')
		}
		if s.reason != "" {
			fmt.Fprintf(&b, "# %s\n", s.reason)
		}
		fmt.Fprintf(&b, "$ %s\n%s", s.line, s.text)
	}
	if err := os.WriteFile(filepath.Join("testdata", name), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// words splits a command line; single quotes keep blanks.
func words(line string) (all []string) {
	for n, part := range strings.Split(line, "'") {
		if n%2 == 1 {
			all[len(all)-1] += part
			continue
		}
		for i, w := range strings.Split(part, " ") {
			if i == 0 && n > 0 {
				all[len(all)-1] += w
			} else {
				all = append(all, w)
			}
		}
	}
	return all
}

var (
	ago    = regexp.MustCompile(`AGO\(([^)]*)\)`)
	stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`)
	// Words before an error that say who tells it.
	tellers = regexp.MustCompile(`^(error: |Error from server(?: \([A-Za-z]+\))?: |error |(?:get|describe|logs|exec|attach|port-forward|cp|debug|delete|wait|events|top pods): )+`)
	blanks  = regexp.MustCompile(`(?m) +$`)
	// glog's lines, with their time.
	logged = regexp.MustCompile(`(?m)^[EWI]\d{4} .*\n`)
)

// textOf is a result without what is different in each run.
func textOf(line, out, errs string, failed bool) string {
	var b strings.Builder
	put := func(mark, text string) {
		text = stamps.ReplaceAllString(text, "TIME")
		for l := range strings.Lines(text) {
			b.WriteString(mark + strings.TrimSuffix(l, "\n") + "\n")
			if !strings.HasSuffix(l, "\n") {
				b.WriteString(`\ no newline` + "\n")
			}
		}
	}
	put("| ", out)
	var clean []string
	for l := range strings.Lines(logged.ReplaceAllString(errs, "")) {
		if strings.HasPrefix(l, "See 'kubectl") || strings.HasPrefix(l, "See 'sunaba") {
			continue
		}
		if l = strings.TrimSuffix(strings.TrimSpace(tellers.ReplaceAllString(l, "")), "."); l != "" {
			clean = append(clean, l)
		}
	}
	if len(clean) > 0 {
		put("! ", strings.Join(clean, "\n")+"\n")
	}
	if failed {
		b.WriteString("? 1\n")
	}
	if strings.HasPrefix(line, "top") { // kubectl fills the last column up with blanks
		return blanks.ReplaceAllString(b.String(), "")
	}
	return b.String()
}

// objectsFile is testdata/objects.yaml with times.
func objectsFile(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return ago.ReplaceAllFunc(data, func(m []byte) []byte {
		text := string(m[4 : len(m)-1])
		unit := time.Duration(1)
		if days, ok := strings.CutSuffix(text, "d"); ok {
			text, unit = days+"h", 24
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return now.Add(-d*unit-20*time.Second).UTC().AppendFormat(nil, time.RFC3339)
	})
}

// record asks kubectl.
func record(t *testing.T) (all []said) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "objects.yaml")
	if err := os.WriteFile(file, objectsFile(t), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(*tablesFlag, file)
	server.Stderr = os.Stderr
	address, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	url, err := bufio.NewReader(address).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines(t) {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		cmd := exec.CommandContext(ctx, *kubectlFlag, append([]string{"--server=" + strings.TrimSpace(url), "--cache-dir=" + dir}, words(line)...)...)
		cmd.Env = []string{"HOME=" + dir, "TZ=UTC"}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		cancel()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		all = append(all, said{line: line, text: strings.ReplaceAll(textOf(line, out.String(), errs.String(), err != nil), strings.TrimSpace(url), "SERVER")})
	}
	return all
}

// ours runs a line with an agent that has the objects.
func ours(t *testing.T, line string) string {
	t.Helper()
	n := newNode(t)
	n.fill(t, objectsFile(t))
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var out, errs buffer
	done := make(chan error, 1)
	go func() { done <- n.runTo(ctx, &out, &errs, "", words(line)...) }()
	var err error
	if strings.Contains(line, " -w") || strings.Contains(line, " --watch-only") {
		select { // until nothing more is printed
		case err = <-done:
		case <-time.After(500 * time.Millisecond):
			cancel()
			err = <-done
		}
	} else {
		err = <-done
	}
	text := errs.String()
	if err != nil {
		text += err.Error() + "\n"
	}
	return textOf(line, out.String(), text, err != nil)
}

// fill gives the agent the objects of a file.
func (n *node) fill(t *testing.T, data []byte) {
	t.Helper()
	a := n.agent
	a.pods, a.events, a.objects, n.measured = nil, nil, map[string][]metav1.Object{}, []api.ContainerUsage{}
	as := func(doc string, v any) {
		if err := yaml.Unmarshal([]byte(doc), v); err != nil {
			t.Fatal(err)
		}
	}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var kind metav1.TypeMeta
		as(doc, &kind)
		var o metav1.Object
		switch kind.Kind {
		case "Pod":
			p := &corev1.Pod{}
			as(doc, p)
			a.pods = append(a.pods, p)
			continue
		case "Event":
			e := &corev1.Event{}
			as(doc, e)
			a.events = append(a.events, e)
			continue
		case "PodMetrics":
			n.measure(t, doc)
			continue
		case "ConfigMap":
			o = &corev1.ConfigMap{}
		case "Secret":
			o = &corev1.Secret{}
		case "PersistentVolumeClaim":
			o = &corev1.PersistentVolumeClaim{}
		case "RuntimeClass":
			o = &nodev1.RuntimeClass{}
		default:
			t.Fatalf("kind %q", kind.Kind)
		}
		as(doc, o)
		a.objects[kind.Kind] = append(a.objects[kind.Kind], o)
	}
	order := func(a, b metav1.Object) int {
		return cmp.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	}
	slices.SortFunc(a.pods, func(a, b *corev1.Pod) int { return order(a, b) })
	slices.SortFunc(a.events, func(a, b *corev1.Event) int { return order(a, b) })
	for _, all := range a.objects {
		slices.SortFunc(all, order)
	}
}

func (n *node) measure(t *testing.T, doc string) {
	t.Helper()
	var m struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Containers []struct {
			Name  string                       `json:"name"`
			Usage map[string]resource.Quantity `json:"usage"`
		} `json:"containers"`
	}
	if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Containers {
		cpu, memory := c.Usage["cpu"], c.Usage["memory"]
		n.measured = append(n.measured, api.ContainerUsage{
			Pod: types.UID("uid-" + m.Metadata.Name), Container: c.Name, NanoCores: uint64(cpu.ScaledValue(resource.Nano)), MemoryBytes: uint64(memory.Value()),
		})
	}
}
