package statuspage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// shots is where the pictures of the documentation are written; "" for a folder that is removed.
var shots = flag.String("shots", "", "write pictures of the page to `FOLDER`")

// largest is how many bytes a picture may have.
const largest = 150_000

// rig is a server with a page, and a browser.
type rig struct {
	*node.Watched
	*browser
	url       string
	manifests string
}

// start starts both; without manifests the server runs no pods of its own.
func start(t *testing.T, manifests bool) *rig {
	t.Helper()
	dir, err := os.MkdirTemp(world.folder, "node-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{manifests: filepath.Join(dir, "manifests")}
	if err := os.Mkdir(r.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	port, err := node.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	r.url = fmt.Sprintf("http://127.0.0.1:%d/", port)
	config := fmt.Sprintf("cgroup_driver = %q\n[network]\nconf_dir = %q\n[page]\naddress = \"127.0.0.1:%d\"\n", node.Driver(), filepath.Join(dir, "cni"), port)
	if manifests {
		config += fmt.Sprintf("[pods]\nmanifests = [%q]\nlogs = %q\nnode_name = \"till-4\"\nlogind_drop_in = false\n", r.manifests, filepath.Join(dir, "pod-logs"))
	}
	if r.Watched, err = node.StartWatched(t.Context(), node.Options{Bin: filepath.Join(world.folder, "bin"), Dir: dir, Config: config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.endPods(t)
		if err := r.Finish(); err != nil {
			t.Error(err)
		}
	})
	if manifests {
		r.browser = startBrowser(t)
	}
	return r
}

// endPods removes all manifests and waits until their pods are over.
func (r *rig) endPods(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(r.manifests, "*"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(node.Slow(node.Patience)); r.Alive() && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		list, err := r.ListPodSandbox(context.Background(), &runtime.ListPodSandboxRequest{})
		if err != nil || len(list.GetItems()) <= 1 { // that of the CRI client stays
			return
		}
	}
}

// put copies a manifest to the folder of manifests, with the images of the registry of this test.
func (r *rig) put(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte("REGISTRY"), []byte(world.registry.Host))
	if err := os.WriteFile(filepath.Join(r.manifests, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	rowOf   = `[...document.querySelectorAll("#pods tbody tr")].find(r => r.cells[0].firstChild.textContent === %q)`
	cellsOf = `(r => r ? [...r.cells].map(c => c.textContent).join("|") : "")(` + rowOf + `)`
)

func pod(name string) string   { return fmt.Sprintf(rowOf, name) }
func cells(name string) string { return fmt.Sprintf(cellsOf, name) }

// The page in the order in which somebody would use it. One test, because starts of a server, of
// pods and of a browser take the most time.
func TestPage(t *testing.T) {
	r := start(t, true)
	r.put(t, "shop.yaml")
	r.view(1200, 1060, false)
	r.open(r.url, `document.getElementById("connection").textContent === "Live"`)
	r.until("the pods of the manifest, with figures", cells("catalog")+`.match(/\|wasm\|Running\|1\/1\|0\|\d+s\|\d+\.\d{3}\|\d+\.\d [KM]iB$/) && `+
		cells("web")+`.match(/\|runc\|Running\|1\/1\|0\|\d+s\|\d+\.\d{3}\|\d+\.\d [KM]iB$/) && `+cells("import")+`.includes("|Completed|0/1|0|") && `+
		cells("mail")+`.match(/\|(CrashLoopBackOff|Error)\|1\/2\|\d/)`)
	r.until("the events", `document.querySelectorAll("#events tbody tr").length > 8 && document.getElementById("events").textContent.includes("BackOff")`)
	samples := 3
	if *shots != "" {
		samples = 40 // a line as after a while
	}
	r.until("a line of several samples", fmt.Sprintf("%s.cells[6].querySelector('polyline').getAttribute('points').split(' ').length > %d", pod("web"), min(samples, 10)))
	for at := 10; at < samples; at += 10 {
		r.until("a longer line", fmt.Sprintf("%s.cells[6].querySelector('polyline').getAttribute('points').split(' ').length > %d", pod("web"), at+9))
	}
	r.quiet()

	t.Run("Contents", r.contents)
	t.Run("Reader", r.reader)
	t.Run("Looks", r.looks)
	t.Run("Keyboard", r.keyboard)
	t.Run("Secrets", r.secrets)
	t.Run("Hostile", r.hostile)
	t.Run("Changes", r.changes)
	t.Run("Reconnects", r.reconnects)
	t.Run("WithoutScript", r.withoutScript)
}

func (r *rig) contents(t *testing.T) {
	for what, js := range map[string]string{
		"the node's name":     `document.querySelector("h1").textContent === "till-4" && document.title === "till-4 – Sunaba"`,
		"the figures":         `document.getElementById("figures").textContent.match(/Pods4\d running, 1 failing|Pods4\d running/) !== null`,
		"the conditions":      `["Ready: yes", "MemoryPressure: no", "RuntimeReady: yes", "NetworkReady: yes", "Handler wasm"].every(c => document.getElementById("health").textContent.includes(c))`,
		"what is declared":    `[...document.querySelectorAll("#overhead tbody tr")].some(r => r.textContent.match(/^catalogshop, wasm32\.0 MiB\d+\.\d [KM]iBwithin$/))`,
		"what is over":        `[...document.querySelectorAll("#overhead tbody tr")].some(r => r.textContent.match(/^webshop, runc1\.0 MiB\d+\.\d MiBover$/))`,
		"what is undeclared":  `[...document.querySelectorAll("#overhead tbody tr")].some(r => r.textContent.match(/^mailoffice, runc–\d+\.\d [KM]iBnot declared$/))`,
		"bars by size":        `(b => b.children[1].width.baseVal.value > b.children[2].width.baseVal.value && b.children[2].width.baseVal.value > 1)([...document.querySelectorAll("#overhead tbody tr")].find(r => r.textContent.startsWith("catalog")).querySelector("svg"))`,
		"variants of images":  `[...document.querySelectorAll("#images tbody tr")].some(r => r.cells[0].textContent.endsWith("/shop/catalog:v1") && r.cells[1].textContent.includes("wasip1/wasm") && r.cells[1].textContent.includes("for wasm") && r.cells[1].querySelectorAll("li").length === 2)`,
		"containers of a pod": pod("mail") + `.querySelector("details").textContent.match(/2 containers of office\/mail/) !== null`,
		"newest events first": `(l => l.length > 1 && l.every((t, n) => n === 0 || t <= l[n - 1]))([...document.querySelectorAll("#events time")].map(t => t.dateTime))`,
	} {
		if got := r.text(js); got != "true" {
			t.Errorf("%s: %s\n%s", what, got, r.text("document.body.innerText"))
		}
	}
}

func (r *rig) reader(t *testing.T) {
	tree := r.tree()
	for _, want := range []item{
		{Role: "banner"}, {Role: "main"}, {Role: "contentinfo"}, {Role: "heading", Name: "till-4"}, {Role: "status", Name: ""},
		{Role: "heading", Name: "Node"}, {Role: "heading", Name: "Pods"}, {Role: "heading", Name: "Overhead"}, {Role: "heading", Name: "Images"}, {Role: "heading", Name: "Events"},
		{Role: "link", Name: "Skip to the content"}, {Role: "searchbox", Name: "Filter"}, {Role: "combobox", Name: "Order by"},
		{Role: "table", Name: "The lines are CPU and memory"}, {Role: "table", Name: "Memory that a pod costs beyond"}, {Role: "table", Name: "What is stored"}, {Role: "table", Name: "The newest first"},
		{Role: "columnheader", Name: "Handler"}, {Role: "columnheader", Name: "CPU, cores"}, {Role: "rowheader", Name: "catalog"}, {Role: "cell", Name: "Running"},
		{Role: "image", Name: "CPU in cores, least "}, {Role: "image", Name: "Memory, least "}, {Role: "image", Name: "Declared 32.0 MiB, measured "}, {Role: "image", Name: "Nothing declared, measured "},
		{Role: "StaticText", Name: "Live"}, {Role: "DisclosureTriangle", Name: "2 containers of office/mail"},
	} {
		has(t, tree, want.Role, want.Name)
	}
	levels := ""
	for _, i := range tree {
		if i.Role == "heading" {
			levels += i.Props["level"]
		}
		if i.Role == "image" && i.Name == "" {
			t.Error("a chart has no name")
		}
		if i.Role == "status" && i.Props["live"] != "polite" {
			t.Errorf("a status is %s, not polite", i.Props["live"])
		}
	}
	if levels != "122222" {
		t.Errorf("levels of headings %s", levels)
	}
	// What changes every two seconds is not announced: only what is in a live region is, and that
	// stays.
	before := r.text(`(window.said = 0, document.querySelectorAll("[role=status]").forEach(n => new MutationObserver(l => window.said += l.length).observe(n, {childList: true, characterData: true, subtree: true, attributes: true})), document.body.innerText)`)
	r.until("a change of figures", `document.body.innerText !== `+fmt.Sprintf("%q", before))
	if said := r.text("window.said"); said != "0" {
		t.Errorf("%s changes of live regions while nothing happened", said)
	}
}

// contrast is the least contrast of a text with what is behind it, and that text.
const contrast = `(() => {
  const rgb = c => c.match(/[\d.]+/g).map(Number), light = c => c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, n) => s + v * [.2126, .7152, .0722][n], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  let least = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (!node.textContent.trim() || !e.getClientRects().length || ["SCRIPT", "NOSCRIPT"].includes(e.tagName)) continue;
    const a = light(rgb(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < least[0]) least = [ratio, node.textContent];
  }
  return least[0].toFixed(2) + " " + least[1];
})()`

func (r *rig) looks(t *testing.T) {
	for _, look := range []struct {
		name       string
		width      int
		height     int
		dark, kept bool
	}{{"light", 1100, 980, false, true}, {"dark", 1100, 980, true, true}, {"narrow", 320, 1400, false, false}, {"narrow-dark", 320, 1400, true, false}, {"middle", 800, 1000, false, false}} {
		r.view(look.width, look.height, look.dark)
		var ratio float64
		if _, err := fmt.Sscanf(r.text(contrast), "%f", &ratio); err != nil || ratio < 4.5 {
			t.Errorf("%s: the least contrast is %s", look.name, r.text(contrast))
		}
		if width := r.text("document.documentElement.scrollWidth"); width != fmt.Sprint(look.width) {
			t.Errorf("%s: the page is %s pixels wide; too wide are %s", look.name, width,
				r.text(fmt.Sprintf(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > %d).map(e => e.tagName + "." + e.className).join(" ")`, look.width)))
		}
		if look.dark { // the lower part of the page, so that two pictures show all of it
			r.text(`document.getElementById("overhead-title").parentNode.scrollIntoView()`)
		}
		folder := *shots
		if folder == "" || !look.kept {
			folder = t.TempDir()
		}
		file := filepath.Join(folder, "status-page-"+look.name+".png")
		r.do(nil, "shot", "file", file)
		if info, err := os.Stat(file); err != nil || info.Size() > largest || info.Size() < 5000 {
			t.Errorf("%s: %v, %d bytes", look.name, err, info.Size())
		}
	}
	r.view(1200, 1060, false)
	r.text("scrollTo(0, 0)")
}

func (r *rig) keyboard(t *testing.T) {
	focus := func(want string) {
		t.Helper()
		if got := r.text(`(e => e.id || e.className || e.tagName)(document.activeElement)`); got != want {
			t.Errorf("focus is on %s, not on %s", got, want)
		}
		if got := r.text(`getComputedStyle(document.activeElement).outlineStyle`); want != "main" && got == "none" {
			t.Errorf("focus on %s cannot be seen", want)
		}
	}
	r.key("Tab")
	focus("skip")
	if r.text(`document.activeElement.getBoundingClientRect().top >= 0`) != "true" {
		t.Error("the skip link cannot be seen while it has focus")
	}
	r.key("Enter")
	focus("main")
	r.key("Tab")
	focus("filter")
	r.key("CATA")
	r.until("one pod", `document.querySelectorAll("#pods tbody tr").length === 1 && document.getElementById("pods-count").textContent === "1 of 4 pods"`)
	r.key("zz")
	r.until("no pod", `document.getElementById("pods").hidden && document.getElementById("pods").parentNode.textContent.includes("No pod has the text")`)
	r.text(`(f => (f.value = "", f.dispatchEvent(new Event("input"))))(document.getElementById("filter"))`)
	r.until("all pods", `document.querySelectorAll("#pods tbody tr").length === 4`)
	r.key("Tab")
	focus("order")
	r.text(`(o => (o.value = "cores", o.dispatchEvent(new Event("change"))))(document.getElementById("order"))`)
	r.until("the order of CPU", `document.querySelector("#pods tbody th span").textContent === "web"`)
	r.key("Tab", "Enter")
	focus("SUMMARY")
	// What is open and where the focus is stay when figures change.
	before := r.text(pod("web") + `.cells[5].textContent`)
	r.until("a change", pod("web")+`.cells[5].textContent !== `+fmt.Sprintf("%q", before))
	focus("SUMMARY")
	if got := r.text(`document.activeElement.parentNode.open && document.activeElement.parentNode.textContent`); !strings.Contains(got, "web: Running") || !strings.Contains(got, "/shop/web:v1") {
		t.Errorf("the containers: %s", got)
	}
	r.key("Shift+Tab", "Shift+Tab")
	focus("filter")
	r.text(`(o => (o.value = "name", o.dispatchEvent(new Event("change"))))(document.getElementById("order"))`)
	r.quiet()
}

// state is what a new client of the stream gets first.
func (r *rig) state(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, found := strings.CutPrefix(line, "data: {"); found {
			return "{" + data
		}
	}
}

// No environment and no annotation is sent, and the stream is for the page alone.
func (r *rig) secrets(t *testing.T) {
	data := r.state(t)
	for _, secret := range []string{"secret-of-the-environment", "annotation-that-is-not-shown", "TOKEN"} {
		if strings.Contains(data, secret) || strings.Contains(r.text("document.documentElement.outerHTML"), secret) {
			t.Errorf("the page has %q", secret)
		}
	}
}

// run runs a pod with one container, as crictl does.
func (r *rig) run(t *testing.T, config *runtime.PodSandboxConfig, name string) {
	t.Helper()
	image := world.registry.Host + "/shop/web:v1"
	if _, err := r.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: image}}); err != nil {
		t.Fatal(err)
	}
	started, err := r.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	r.Ran(started.GetPodSandboxId())
	container := node.ContainerConfig(image)
	container.Metadata.Name, container.Command, container.LogPath = name, []string{"sh", "-c", "while :; do usleep 500000; done"}, ""
	id, _, err := r.Create(t.Context(), started.GetPodSandboxId(), config, container)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
}

// hostile adds what has markup in every name that a stranger gives.
func (r *rig) hostile(t *testing.T) {
	const markup = `"><img src=x onerror="window.owned=1"><script>window.owned=1`
	config := r.PodConfig("<b>space", markup)
	config.Metadata.Uid, config.LogDirectory, config.Hostname = "<i>uid", filepath.Join(r.Logs, "hostile"), "hostile"
	r.run(t, config, "<svg onload=owned=1>")
	r.put(t, "hostile.yaml")
	r.until("the hostile pod as text", cells(markup)+`.includes("<b>space") && `+cells(markup)+`.includes("<svg onload=owned=1>: Running") && `+cells(markup)+`.includes("|runc|Running|1/1|")`)
	r.until("the hostile image as text, among pods and events", cells("hostile-image")+`.includes("<img/src=x/onerror=owned=1>") && document.getElementById("events").textContent.includes("<img/src=x/onerror=owned=1>")`)
	if got := r.text(`document.querySelectorAll("main img, main script, main b, main i, main a, main iframe, svg[onload], [onerror]").length + " " + typeof window.owned`); got != "0 undefined" {
		t.Errorf("markup was parsed: %s", got)
	}
	r.quiet()
	if err := os.Remove(filepath.Join(r.manifests, "hostile.yaml")); err != nil {
		t.Fatal(err)
	}
	r.until("the pod goes", "!"+pod("hostile-image"))
}

func (r *rig) changes(t *testing.T) {
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: late}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: %q, command: [sh, -c, \"trap 'exit 0' TERM; while :; do usleep 100000; done\"]}]\n",
		world.registry.Host+"/shop/web:v1")
	file := filepath.Join(r.manifests, "late.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.until("the new pod runs", cells("late")+`.includes("|Running|1/1|")`)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.until("it is removed from both tables", "!"+pod("late")+` && !document.getElementById("overhead").textContent.includes("late")`)
}

func (r *rig) reconnects(t *testing.T) {
	state := `document.getElementById("connection").textContent`
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} { // SIGTERM must not wait for the stream
		if err := r.SignalDaemon(signal); err != nil {
			t.Fatal(err)
		}
		r.until("the page says that the connection is lost", state+`.match(/^Connection lost since .*\d.*, connecting again$/) && document.querySelector("#connection time").dateTime`)
		has(t, r.tree(), "StaticText", "Connection lost")
		if r.text(cells("catalog")) == "" {
			t.Error("what was seen last is not shown")
		}
		if err := r.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.until("it is connected again", state+` === "Live" && `+cells("catalog")+`.includes("|Running|1/1|")`)
		r.quiet("net::ERR_")
	}
}

func (r *rig) withoutScript(t *testing.T) {
	r.do(nil, "scripts", "off", true)
	r.do(nil, "open", "url", r.url)
	has(t, r.tree(), "StaticText", "This page needs JavaScript")
	r.do(nil, "scripts", "off", false)
}

// A server without manifests shows the pods of clients of the CRI.
func TestWithoutManifests(t *testing.T) {
	r := start(t, false)
	r.run(t, r.PodConfig("default", "by-crictl"), "c")
	var got struct {
		State struct {
			Node struct {
				Name       string
				Manifests  bool
				Conditions []struct{ Good bool }
			}
			Pods []struct {
				Name, Handler, Status, Tone string
				Use                         *struct{ MemoryBytes, MeasuredBytes uint64 }
			}
			Images   []struct{ Name string }
			Problems []string
		}
	}
	data := r.state(t)
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		t.Fatal(err)
	}
	s := got.State
	if s.Node.Name == "" || s.Node.Manifests || len(s.Node.Conditions) != 2 || !s.Node.Conditions[1].Good || len(s.Images) != 1 || len(s.Problems) > 0 || len(s.Pods) != 1 {
		t.Fatal(data)
	}
	if p := s.Pods[0]; p.Name != "by-crictl" || p.Handler != "runc" || p.Status != "Running" || p.Tone != "fine" || p.Use == nil || p.Use.MeasuredBytes == 0 || p.Use.MemoryBytes <= p.Use.MeasuredBytes {
		t.Error(data)
	}
}
