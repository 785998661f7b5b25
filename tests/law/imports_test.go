package law

import (
	"slices"
	"strings"
	"testing"
)

// parts are the questions of the house, and the floor that all of them stand on.
var parts = []struct {
	from   string   // packages below this folder ...
	may    []string // ... may import only these of ours
	reason string
}{
	{"host", []string{"host"},
		"host says what Linux does; all others stand on it, the shim among them"},
	{"runtimeclass", nil,
		"runtimeclass parses and computes; a daemon, a test and a user's tool must be able to call it with nothing else"},
	{"images", []string{"images", "host"},
		"images knows nothing of pods: it turns a reference and platforms into a root file system or a module"},
	{"shim", []string{"shim", "runtimeclass", "host"},
		"the shim is a binary of its own that containerd runs too: what it imports is every pod's overhead"},
	{"criserver", []string{"criserver", "images", "runtimeclass", "shim/annotation", "shim/client", "shim/stdio", "host"},
		"the CRI face talks to a shim through its client, over the socket, so that it can be killed at any moment"},
	{"pods", []string{"pods", "runtimeclass", "shim/stdio", "host"},
		"pods decides what runs and asks the CRI for it: it drives any CRI server, ours in its own process"},
}

// walls are pairs that never see each other: from → to.
var walls = []struct{ from, to, reason string }{
	{"shim/runc", "shim/wasm", "two engines behind one contract: what one needs of the other belongs in shim"},
	{"shim/wasm", "shim/runc", "two engines behind one contract: what one needs of the other belongs in shim"},
	{"shim/wasm/gowasm", "shim/wasm/compile", "how functions are rewritten does not depend on how modules are kept"},
	{"shim/wasm/gowasm/verify", "shim/wasm/gowasm", "the verifier shares nothing with what it verifies"},
	{"shim/wasm/wasi", "shim/wasm/wasip1", "the operations stand below every ABI"},
	{"shim/wasm/wasi", "shim/wasm/wasmedge", "the operations stand below every ABI"},
	{"shim/wasm/wasi", "shim/wasm/wasip2", "the operations stand below every ABI"},
	{"shim/wasm/canonical", "shim/wasm/wasip2", "how functions are lowered does not depend on which ones there are"},
	{"shim/wasm/canonical", "shim/wasm/async", "what is lowered synchronously knows nothing of tasks"},
	{"shim/wasm/async", "shim/wasm/wasip2", "the asynchronous ABI does not depend on which functions there are"},
	{"shim/wasm/async", "shim/wasm/wasip3", "the asynchronous ABI does not depend on which functions there are"},
	{"shim/wasm/wasip2", "shim/wasm/wasip3", "WASI 0.3 stands on 0.2, never the other way round"},
	{"shim/wasm/wasip3", "shim/wasm/wasihttp", "wasi:http stands on the rest of WASI, never the other way round"},
	{"shim/wasm/wasip2", "shim/wasm/wasihttp", "wasi:http stands on the rest of WASI 0.2, never the other way round"},
	{"shim/wasm/wasip2", "shim/wasm/wasip1", "two ABIs over the same operations: what both need belongs in wasi"},
	{"shim/wasm/wasip1", "shim/wasm/wasip2", "two ABIs over the same operations: what both need belongs in wasi"},
	{"shim/wasm/wasip1", "shim/wasm/wasmedge", "an extension knows what it extends, never the other way round"},
	{"criserver/sandbox", "criserver/container", "containers live in sandboxes, never the other way round"},
	{"criserver/sandbox", "criserver/session", "sessions are opened in containers, which live in sandboxes"},
	{"criserver/sandbox", "criserver/checkpoint", "checkpoints are of containers, which live in sandboxes"},
	{"criserver/container", "criserver/checkpoint", "a checkpoint is made of a container, or a container of it, from outside"},
	{"criserver/container", "criserver/session", "sessions are opened in containers, never the other way round"},
}

// testImports are what tests import beyond their part, each with its reason.
var testImports = []struct{ from, to, reason string }{
	{"criserver/container", "shim/api", "a shim that the test plays answers with the Task API's types"},
	{"criserver/container", "shim/bundle", "a shim that the test plays reads the bundle that it is given"},
	{"shim/wasm/wasip3", "shim/wasm/wasihttp", "wasi-testsuite's programs are of both"},
}

func TestImportLaw(t *testing.T) {
	for _, p := range project(t) {
		for _, imported := range p.Imports {
			if to, own := strings.CutPrefix(imported, module+"/"); own {
				for _, broken := range brokenLaws(p.rel(), to) {
					t.Errorf("%s imports %s: %s", p.rel(), to, broken)
				}
			}
		}
	}
}

// Tests keep to the law of their part: what only a test can reach from here, it reaches around the
// part's face. They may use the project's test support.
func TestImportLawOfTests(t *testing.T) {
	used := map[string]bool{}
	for _, p := range project(t) {
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			to, own := strings.CutPrefix(imported, module+"/")
			if !own || below(to, "tests") {
				continue
			}
			if exception := testException(p.rel(), to); exception != "" {
				used[exception] = true
				continue
			}
			for _, broken := range brokenLaws(p.rel(), to) {
				t.Errorf("a test of %s imports %s: %s", p.rel(), to, broken)
			}
		}
	}
	for _, e := range testImports {
		if !used[e.from+" "+e.to] {
			t.Errorf("no test of %s imports %s any more: remove the exception", e.from, e.to)
		}
	}
}

func testException(from, to string) string {
	for _, e := range testImports {
		if from == e.from && to == e.to {
			return e.from + " " + e.to
		}
	}
	return ""
}

// brokenLaws are the reasons for which package from must not import package to.
func brokenLaws(from, to string) []string {
	var broken []string
	if below(to, "cmd") && !below(from, "cmd") {
		broken = append(broken, "nothing imports a command")
	}
	if below(to, "tests", "examples") && !below(from, "tests", "examples") {
		broken = append(broken, "what ships does not depend on what tests it")
	}
	for _, part := range parts {
		if below(from, part.from) && !below(to, append([]string{part.from}, part.may...)...) {
			broken = append(broken, part.reason)
		}
	}
	for _, wall := range walls {
		if below(from, wall.from) && below(to, wall.to) {
			broken = append(broken, wall.reason)
		}
	}
	return broken
}

// hostModules are the foreign modules that host may import: the shim links it, and with it all of
// these.
var hostModules = []string{
	"golang.org/x/sys", "github.com/moby/sys", "github.com/containerd/errdefs", "github.com/opencontainers/cgroups", "github.com/opencontainers/runtime-spec",
}

// systemdModules are for host/systemd, which the daemon alone imports.
var systemdModules = []string{"github.com/coreos/go-systemd/v22", "github.com/godbus/dbus/v5"}

func TestHostImportsLittle(t *testing.T) {
	for _, p := range project(t) {
		if !below(p.rel(), "host") {
			continue
		}
		allowed := hostModules
		if below(p.rel(), "host/systemd") {
			allowed = slices.Concat(hostModules, systemdModules)
		}
		for _, imported := range p.Imports {
			first, _, _ := strings.Cut(imported, "/")
			if strings.Contains(first, ".") && !below(imported, module) && !below(imported, allowed...) {
				t.Errorf("%s imports %s: the shim links host, so what host imports is every pod's overhead", p.rel(), imported)
			}
		}
	}
}

// homes says which folders may import a foreign module; the law is about what ships, so cmd and
// tests are named where they need it.
var homes = []struct {
	module  string
	folders []string
	reason  string
}{
	{"github.com/tetratelabs/wazero", []string{"shim/wasm", "cmd", "tests/gowasm"},
		"the engine's version is pinned to the layout of its cache: one folder knows it"},
	{"k8s.io/cri-api", []string{"criserver", "pods", "cmd", "tests", "examples"},
		"CRI types stop at the CRI face, and pods asks it; below it are OCI specs and our own values"},
	{"k8s.io/cri-streaming", []string{"criserver", "cmd", "tests"},
		"streaming is part of the CRI face"},
	{"github.com/containerd/containerd/api", []string{"shim", "cmd", "tests"},
		"the Task API is the shim's contract; others use shim/client"},
	{"github.com/containerd/ttrpc", []string{"shim", "cmd", "tests"},
		"the Task API is the shim's contract; others use shim/client"},
	{"go.opentelemetry.io", []string{"cmd/sunaba/tracing", "tests"},
		"one package of the daemon records spans; all others use the seam, host/trace, which is nothing where nobody asked for traces"},
	{"go.etcd.io/bbolt", []string{"images"},
		"one database, of images; pods and containers are one JSON record each (docs/RATIONALE.md)"},
}

// banned are foreign modules that a folder does not import although it lies in the module's home.
var banned = []struct{ folder, module, reason string }{
	{"shim/wasm/wasi", "github.com/tetratelabs/wazero", "the operations take and give values of Go, for the ABI of any version"},
	{"pods/manifest", "os", pure}, {"pods/manifest", "golang.org/x/sys", pure}, {"pods/manifest", "net/http", pure},
	{"pods/cycle", "os", pure}, {"pods/cycle", "golang.org/x/sys", pure}, {"pods/cycle", "net/http", pure},
	{"pods/translate", "os", pure}, {"pods/translate", "golang.org/x/sys", pure}, {"pods/translate", "net/http", pure},
}

// pure is why some packages touch nothing.
const pure = "what a pod does next, and with which configuration, is computed from values alone, so that a table can test it"

func TestForeignModulesStayOut(t *testing.T) {
	for _, p := range project(t) {
		for _, imported := range p.Imports {
			for _, ban := range banned {
				if below(p.rel(), ban.folder) && below(imported, ban.module) {
					t.Errorf("%s imports %s: %s", p.rel(), imported, ban.reason)
				}
			}
		}
	}
}

func TestForeignModulesHaveAHome(t *testing.T) {
	for _, p := range project(t) {
		for _, imported := range p.Imports {
			for _, home := range homes {
				if below(imported, home.module) && !below(p.rel(), home.folders...) {
					t.Errorf("%s imports %s, which belongs below %s: %s", p.rel(), imported, strings.Join(home.folders, ", "), home.reason)
				}
			}
		}
	}
}

// shimGRPC is the part of google.golang.org/grpc that the shim binary may link: ttrpc's errors are
// gRPC status values, so its wire format needs the code and status types and what those are made
// of. None of them opens a connection or registers anything.
var shimGRPC = map[string]bool{
	"google.golang.org/grpc/codes":                     true,
	"google.golang.org/grpc/status":                    true,
	"google.golang.org/grpc/internal":                  true,
	"google.golang.org/grpc/internal/status":           true,
	"google.golang.org/grpc/grpclog":                   true, // named by google.golang.org/grpc/internal
	"google.golang.org/grpc/grpclog/internal":          true,
	"google.golang.org/grpc/connectivity":              true, // named by google.golang.org/grpc/internal
	"google.golang.org/grpc/serviceconfig":             true, // named by google.golang.org/grpc/internal
	"google.golang.org/genproto/googleapis/rpc/status": true,
}

// shimForbidden are modules that the shim binary must not link, because each pod pays for it.
var shimForbidden = []string{
	"google.golang.org/grpc", "google.golang.org/genproto",
	"k8s.io", "sigs.k8s.io",
	"github.com/containerd/containerd", // the API's generated types too: package shim/message has their messages
	"github.com/opencontainers/go-digest", "github.com/opencontainers/image-spec", "regexp", "google.golang.org/protobuf/types/descriptorpb",
	"github.com/prometheus", "go.etcd.io/bbolt", "go.opentelemetry.io",
	module + "/images", module + "/criserver", module + "/runtimeclass", module + "/host/systemd",
}

func TestShimBinaryIsLean(t *testing.T) {
	for _, p := range goList(t, "-deps", "-tags", "no_grpc", "./cmd/containerd-shim-sunaba-v1") {
		if below(p.ImportPath, shimForbidden...) && !shimGRPC[p.ImportPath] {
			t.Errorf("the shim binary links %s: its size and its start-up are every pod's overhead", p.ImportPath)
		}
	}
}
