package law

import (
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
	{"criserver", []string{"criserver", "images", "runtimeclass", "shim/client", "shim/stdio", "host"},
		"the CRI face talks to a shim through its client, over the socket, so that it can be killed at any moment"},
}

// walls are pairs that never see each other: from → to.
var walls = []struct{ from, to, reason string }{
	{"shim/runc", "shim/wasm", "two engines behind one contract: what one needs of the other belongs in shim"},
	{"shim/wasm", "shim/runc", "two engines behind one contract: what one needs of the other belongs in shim"},
	{"shim/wasm/gowasm", "shim/wasm/compile", "how functions are rewritten does not depend on how modules are kept"},
	{"shim/wasm/gowasm/verify", "shim/wasm/gowasm", "the verifier shares nothing with what it verifies"},
	{"shim/wasm/wasi", "shim/wasm/wasip1", "the operations stand below every ABI"},
	{"shim/wasm/wasi", "shim/wasm/wasmedge", "the operations stand below every ABI"},
	{"shim/wasm/wasip1", "shim/wasm/wasmedge", "an extension knows what it extends, never the other way round"},
	{"criserver/sandbox", "criserver/container", "containers live in sandboxes, never the other way round"},
	{"criserver/sandbox", "criserver/session", "sessions are opened in containers, which live in sandboxes"},
	{"criserver/sandbox", "criserver/checkpoint", "checkpoints are of containers, which live in sandboxes"},
	{"criserver/container", "criserver/checkpoint", "a checkpoint is made of a container, or a container of it, from outside"},
	{"criserver/container", "criserver/session", "sessions are opened in containers, never the other way round"},
}

func TestImportLaw(t *testing.T) {
	for _, p := range project(t) {
		from := p.rel()
		for _, imported := range p.Imports {
			to, own := strings.CutPrefix(imported, module+"/")
			if !own {
				continue
			}
			if below(to, "cmd") && !below(from, "cmd") {
				t.Errorf("%s imports %s: nothing imports a command", from, to)
			}
			if below(to, "tests", "examples") && !below(from, "tests", "examples") {
				t.Errorf("%s imports %s: what ships does not depend on what tests it", from, to)
			}
			for _, part := range parts {
				if below(from, part.from) && !below(to, append([]string{part.from}, part.may...)...) {
					t.Errorf("%s imports %s: %s", from, to, part.reason)
				}
			}
			for _, wall := range walls {
				if below(from, wall.from) && below(to, wall.to) {
					t.Errorf("%s imports %s: %s", from, to, wall.reason)
				}
			}
		}
	}
}

// homes says which folders may import a foreign module; the law is about what ships, so cmd and tests
// are named where they need it.
var homes = []struct {
	module  string
	folders []string
	reason  string
}{
	{"github.com/tetratelabs/wazero", []string{"shim/wasm", "cmd", "tests/gowasm"},
		"the engine's version is pinned to the layout of its cache: one folder knows it"},
	{"k8s.io/cri-api", []string{"criserver", "cmd", "tests", "examples"},
		"CRI types stop at the CRI face; below it are OCI specs and our own values"},
	{"k8s.io/cri-streaming", []string{"criserver", "cmd", "tests"},
		"streaming is part of the CRI face"},
	{"github.com/containerd/containerd/api", []string{"shim", "cmd", "tests"},
		"the Task API is the shim's contract; others use shim/client"},
	{"github.com/containerd/ttrpc", []string{"shim", "cmd", "tests"},
		"the Task API is the shim's contract; others use shim/client"},
	{"go.etcd.io/bbolt", []string{"images"},
		"one database, of images; pods and containers are one JSON record each (docs/RATIONALE.md)"},
}

// banned are foreign modules that a folder does not import although it lies in the module's home.
var banned = []struct{ folder, module, reason string }{
	{"shim/wasm/wasi", "github.com/tetratelabs/wazero", "the operations take and give values of Go, for the ABI of any version"},
}

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
// gRPC status values, so its wire format needs the code and status types and what those are made of.
// None of them opens a connection or registers anything.
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
	"github.com/containerd/containerd/v2/client", "github.com/containerd/containerd/v2/core",
	"github.com/prometheus", "go.etcd.io/bbolt",
	module + "/images", module + "/criserver", module + "/runtimeclass", module + "/host/systemd",
}

func TestShimBinaryIsLean(t *testing.T) {
	for _, p := range goList(t, "-deps", "-tags", "no_grpc", "./cmd/containerd-shim-sunaba-v1") {
		if below(p.ImportPath, shimForbidden...) && !shimGRPC[p.ImportPath] {
			t.Errorf("the shim binary links %s: its size and its start-up are every pod's overhead", p.ImportPath)
		}
	}
}
