package wasip3_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/serve"
)

// operation is a step of a program of wasi-testsuite's.
type operation struct {
	Type     string            `json:"type"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	ID       string            `json:"id"`
	Payload  string            `json:"payload"`
	ExitCode int               `json:"exit_code"`

	// Of a request.
	Method   string            `json:"method"`
	Path     string            `json:"path"`
	Headers  map[string]string `json:"headers"`
	Body     string            `json:"body"`
	Response answer            `json:"response"`
}

// program is what the file beside a program says.
type program struct {
	Root       string      `json:"root"`
	World      string      `json:"world"`
	Servers    []server    `json:"servers"`
	Operations []operation `json:"operations"`
}

// TestSuite runs wasi-testsuite's programs for WASI 0.3: the folders wasm32-wasip3 below that of
// WASI_TESTSUITE (`make wasi-suite DIR=...`; see package wasip1's test of that name).
func TestSuite(t *testing.T) {
	folder := os.Getenv("WASI_TESTSUITE")
	if folder == "" {
		t.Skip("WASI_TESTSUITE is not set")
	}
	var programs []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".wasm" && filepath.Base(filepath.Dir(path)) == "wasm32-wasip3" {
			programs = append(programs, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(programs) == 0 {
		t.Skipf("no programs of WASI 0.3 below %s", folder)
	}
	var table strings.Builder
	passed := 0
	for _, path := range programs {
		verdict := "FAIL"
		if t.Run(strings.TrimSuffix(filepath.Base(path), ".wasm"), func(t *testing.T) { runProgram(t, path) }) {
			verdict = "pass"
			passed++
		}
		fmt.Fprintf(&table, "%-4s  %s\n", verdict, filepath.Base(path))
	}
	t.Logf("WASI 0.3:\n%s%d of %d", table.String(), passed, len(programs))
}

func runProgram(t *testing.T, path string) {
	p := program{Operations: []operation{{Type: "run"}, {Type: "wait"}}}
	data, err := os.ReadFile(strings.TrimSuffix(path, ".wasm") + ".json")
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	root := t.TempDir()
	if p.Root != "" {
		if err := os.CopyFS(root, os.DirFS(filepath.Join(filepath.Dir(path), p.Root))); err != nil {
			t.Fatal(err)
		}
	}
	run := &played{T: t, guest: guest{root: root}, path: path, service: p.World == "wasi:http/service"}
	for _, s := range p.Servers {
		run.env = append(run.env, "HTTP_SERVER_"+strings.ToUpper(s.Name)+"="+s.start(t))
	}
	for _, o := range p.Operations {
		run.do(o)
	}
}

// played is a program that runs.
type played struct {
	*testing.T
	guest
	path           string
	service        bool
	url            string        // of a service
	server         *serve.Server // likewise
	stdin          *os.File
	stdout, stderr *bufio.Reader
	ended          chan uint32
	connections    map[string]net.Conn
}

func (p *played) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *played) do(o operation) {
	p.Helper()
	switch o.Type {
	case "run":
		p.run(o)
	case "wait":
		p.wait(o.ExitCode)
	case "write":
		_, err := io.WriteString(p.stdin, o.Payload)
		p.must(err)
	case "read":
		from := p.stdout
		if o.ID == "stderr" {
			from = p.stderr
		}
		p.expect(from, o.Payload)
	case "connect": // to where the program says that it listens
		address, err := p.stdout.ReadString('\n')
		p.must(err)
		c, err := net.Dial("tcp", strings.TrimSpace(address))
		p.must(err)
		p.Cleanup(func() { c.Close() })
		p.connections = map[string]net.Conn{o.ID: c}
	case "send":
		_, err := io.WriteString(p.connections[o.ID], o.Payload)
		p.must(err)
	case "request":
		p.request(o)
	case "kill":
		p.server.Drain()
	case "recv":
		p.expect(p.connections[o.ID], o.Payload)
	default:
		p.Fatalf("the operation %q is not known", o.Type)
	}
}

// expect reads a text.
func (p *played) expect(from io.Reader, text string) {
	p.Helper()
	b := make([]byte, len(text))
	if n, err := io.ReadFull(from, b); string(b) != text {
		rest, _ := io.ReadAll(p.stderr)
		p.Fatalf("read %q, %v, want %q; standard error:\n%s", b[:n], err, text, rest)
	}
}

// run starts the program, with pipes as its standard streams.
func (p *played) run(o operation) {
	p.Helper()
	file, err := os.ReadFile(p.path)
	p.must(err)
	p.file, p.args = file, append([]string{filepath.Base(p.path)}, o.Args...)
	for name, value := range o.Env {
		p.env = append(p.env, name+"="+value)
	}
	var theirs [3]*os.File
	theirs[0], p.stdin, err = os.Pipe()
	p.must(err)
	p.stdout, theirs[1] = p.pipe()
	p.stderr, theirs[2] = p.pipe()
	p.stdio = theirs
	p.ended = make(chan uint32, 1)
	if p.service {
		p.serve()
		return
	}
	go func() {
		code, err := p.guest.run(p.T)
		if err != nil {
			fmt.Fprintln(theirs[2], err)
		}
		for _, f := range theirs {
			f.Close()
		}
		p.ended <- code
	}()
}

func (p *played) pipe() (*bufio.Reader, *os.File) {
	p.Helper()
	r, w, err := os.Pipe()
	p.must(err)
	p.Cleanup(func() { r.Close() })
	return bufio.NewReader(r), w
}

func (p *played) wait(code int) {
	p.Helper()
	p.stdin.Close()
	said, _ := io.ReadAll(p.stderr)
	_, _ = io.Copy(io.Discard, p.stdout)
	if got := <-p.ended; got != uint32(code) {
		p.Errorf("exit code %d, want %d; standard error:\n%s", got, code, said)
	}
}
