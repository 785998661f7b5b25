package podcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sunaba-project/sunaba/cmd/sunaba/usage"
)

func (n *node) Attach(_ context.Context, r *runtime.AttachRequest) (*runtime.AttachResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attach = append(n.attach, r)
	return &runtime.AttachResponse{Url: n.url}, nil
}

func (n *node) ListPodSandbox(_ context.Context, r *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	if r.GetFilter().GetState().GetState() != runtime.PodSandboxState_SANDBOX_READY {
		return &runtime.ListPodSandboxResponse{}, nil
	}
	box := func(id, namespace, name, uid string) *runtime.PodSandbox {
		return &runtime.PodSandbox{Id: id, Metadata: &runtime.PodSandboxMetadata{Namespace: namespace, Name: name, Uid: uid}}
	}
	return &runtime.ListPodSandboxResponse{Items: []*runtime.PodSandbox{
		box("other", "default", "web-2", "u1"), box("elsewhere", "other", "web", "u2"), box("box", "default", "web", "u2"),
	}}, nil
}

func (n *node) PortForward(_ context.Context, r *runtime.PortForwardRequest) (*runtime.PortForwardResponse, error) {
	if r.GetPodSandboxId() != "box" {
		return nil, errors.New("no such sandbox")
	}
	return &runtime.PortForwardResponse{Url: n.url}, nil
}

// serveStreams is a server of which each connection runs the next command, which returns its exit
// code.
func serveStreams(t *testing.T, commands ...func(in io.Reader, out, errs io.Writer) int) string {
	t.Helper()
	next := make(chan func(in io.Reader, out, errs io.Writer) int, len(commands))
	for _, c := range commands {
		next <- c
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": {Binary: true, Channels: []wsstream.ChannelType{
			wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.ReadChannel,
		}}})
		_, streams, err := conn.Open(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		end := metav1.Status{Status: metav1.StatusSuccess}
		if code := (<-next)(streams[0], streams[1], streams[2]); code != 0 {
			end = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: fmt.Sprint(code)}}}}
		}
		json.NewEncoder(streams[3]).Encode(end)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func echo(in io.Reader, out, _ io.Writer) int {
	io.Copy(out, in)
	return 0
}

// --socket takes the place of the server that --state leads to.
func TestSocket(t *testing.T) {
	n, other := newNode(t), newNode(t)
	other.url = serveStreams(t, func(io.Reader, io.Writer, io.Writer) int { return 0 })
	if _, _, err := n.run(t.Context(), "", "exec", "web", "--socket", filepath.Join(other.dir, "cri.sock"), "--", "true"); err != nil || len(n.exec) != 0 || len(other.exec) != 1 {
		t.Errorf("%v, asked %d and %d", err, len(n.exec), len(other.exec))
	}
}

func TestAttach(t *testing.T) {
	for _, tt := range []struct {
		line, out, errs     string
		stdin, tty, wantsIn bool // of the container, and of the request
	}{
		{line: "attach web -c app", stdin: true},
		{line: "attach -i web", stdin: true, wantsIn: true, out: "hello"},
		{line: "attach -i web -c app", errs: "Unable to use stdin - container app did not allocate one\n"},
		{line: "attach -it web -c app", stdin: true, wantsIn: true, out: "hello", errs: "Unable to use a TTY - container app did not allocate one\n"},
		{line: "attach -it web -c app", stdin: true, tty: true, wantsIn: true, out: "hello", errs: "Unable to use a TTY - input is not a terminal"},
		{line: "attach web -c app", tty: true},
	} {
		n := newNode(t)
		web := pod("web", "u2", corev1.ConditionTrue)
		web.Spec.Containers[0].Stdin, web.Spec.Containers[0].TTY = tt.stdin, tt.tty
		n.agent.set(web)
		n.url = serveStreams(t, func(in io.Reader, out, errs io.Writer) int {
			if !tt.wantsIn {
				return 0
			}
			return echo(in, out, errs)
		})
		out, errOut, err := n.run(t.Context(), "hello", strings.Fields(tt.line)...)
		if err != nil || out != tt.out || !strings.HasPrefix(strings.TrimPrefix(errOut, "Defaulted container \"app\" out of: app, side, init (init)\n"), tt.errs) {
			t.Errorf("%s: %v, %q, %q", tt.line, err, out, errOut)
		}
		r := n.attach[0]
		if r.GetContainerId() != "c-app" || r.GetStdin() != tt.wantsIn || r.GetTty() != tt.tty || !r.GetStdout() || r.GetStderr() == tt.tty {
			t.Errorf("%s: asked for %+v", tt.line, r)
		}
	}
}

func TestSessionsAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"attach":                                     "at least 1 argument is required",
		"attach web side":                            "want one pod",
		"attach web -c init":                         `attach: container "init" in pod "web" does not run`,
		"port-forward web":                           "TYPE/NAME and list of ports are required",
		"port-forward web 0":                         `remote port "0" is neither`,
		"port-forward web 80:70000":                  `remote port "70000" is neither`,
		"port-forward web x:80":                      `local port "x" is not a number`,
		"port-forward web http":                      `remote port "http" is neither`,
		"port-forward done 80":                       "pod is not running. Current status=Succeeded",
		"port-forward web :80 --address example.com": `address "example.com" is neither`,
		"cp a":                                   "source and destination are required",
		"cp a b":                                 "one of src or dest must be a remote file specification",
		"cp web:/a feed:/b":                      "one of src or dest must be a local file specification",
		"cp :/a b":                               "filespec must match the canonical format",
		"cp a/b/c:/a b":                          "filespec must match the canonical format",
		"cp /web:a b":                            "must be a remote",
		"cp web: b":                              "filepath can not be empty",
		"cp /none/x web:/a":                      "no such file",
		"cp web:/a b -c init":                    `cp: container "init" in pod "web" does not run`,
		"cp other/web:/a b":                      `pods "web" not found`,
		"debug":                                  "want a pod",
		"debug web":                              "--image is missing",
		"debug x --image=i":                      `pods "x" not found`,
		"debug web --image=i --profile=netadmin": "--profile=netadmin is not supported",
	} {
		n := newNode(t)
		done := pod("done", "u8", corev1.ConditionFalse)
		done.Status.Phase = corev1.PodSucceeded
		n.agent.set(append(n.agent.Pods(), done)...)
		if _, _, err := n.run(t.Context(), "", strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
		if len(n.agent.debugs) > 0 {
			t.Errorf("%s: the agent was asked", line)
		}
	}
}

// EP5, and what kubectl asks for. Without -i nothing is waited for.
func TestDebug(t *testing.T) {
	n := newNode(t)
	out, errOut, err := n.run(t.Context(), "", "debug", "pod/web", "--image=busybox", "--target", "app", "--", "sh", "-c", "ls")
	name, _ := strings.CutPrefix(errOut, "Defaulting debug container name to debugger-")
	if err != nil || out != "" || len(name) != len("abcde.\n") {
		t.Errorf("%v, %q, %q", err, out, errOut)
	}
	r := n.agent.debugs[0]
	c := r.Container
	if r.Namespace != "default" || r.Name != "web" || c.Name != "debugger-"+name[:5] || c.Image != "busybox" || c.TargetContainerName != "app" || strings.Join(c.Command, " ") != "sh -c ls" ||
		c.Stdin || c.TTY || c.StdinOnce || !slices.Equal(c.SecurityContext.Capabilities.Add, []corev1.Capability{"SYS_PTRACE"}) {
		t.Errorf("asked for %+v", r)
	}
}

// debugged is the pod web with an ephemeral container.
func debugged(state corev1.ContainerState) *corev1.Pod {
	web := pod("web", "u2", corev1.ConditionTrue)
	web.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Stdin: true}}}
	web.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "d", ContainerID: "sunaba://c-d", State: state}}
	return web
}

func ended(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, ContainerID: "sunaba://c-d", Reason: "Error"}}
}

// B.5: debug -i ends with the container's exit code.
func TestDebugWithStreams(t *testing.T) {
	for name, tt := range map[string]struct {
		states    []corev1.ContainerState
		out, errs string
		code      usage.Exit
		fails     string
		attach    bool
	}{
		"attached": {states: []corev1.ContainerState{
			{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such \x1bimage"}}, {Running: &corev1.ContainerStateRunning{}}, ended(5),
		}, out: "hello", errs: "container d: no such  image\n", code: 5, attach: true},
		"ended already": {states: []corev1.ContainerState{ended(6)}, out: "from its log\n", errs: "warning: couldn't attach to container d, falling back to its logs: it has ended already\n", code: 6},
		"never started": {states: []corev1.ContainerState{{Terminated: &corev1.ContainerStateTerminated{Reason: "ContainerCannotRun", Message: "no sh", ExitCode: 128}}},
			errs: "warning: ", fails: `container "d" did not start: ContainerCannotRun: no sh`},
		"deleted": {states: []corev1.ContainerState{{Waiting: &corev1.ContainerStateWaiting{}}}, fails: `pod "web" was deleted`},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.log(t, "c-d", runtime.ContainerState_CONTAINER_EXITED, "from its log")
			n.url = serveStreams(t, func(in io.Reader, out, errs io.Writer) int {
				defer n.agent.set(debugged(tt.states[len(tt.states)-1]))
				return echo(in, out, errs)
			})
			go func() {
				for _, s := range tt.states {
					if s.Terminated == nil || len(tt.states) == 1 {
						n.agent.set(debugged(s))
						time.Sleep(200 * time.Millisecond)
					}
				}
				if name == "deleted" {
					n.agent.set()
				}
			}()
			out, errOut, err := n.run(t.Context(), "hello", "debug", "web", "--image=busybox", "-c", "d", "-i")
			var code usage.Exit
			if errors.As(err, &code); code != tt.code || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("%v, want %d, %q", err, tt.code, tt.fails)
			}
			if out != tt.out || !strings.HasPrefix(errOut, tt.errs) || len(n.attach) > 0 != tt.attach {
				t.Errorf("printed %q and %q, attached %v", out, errOut, n.attach)
			}
			if !n.agent.debugs[0].Container.StdinOnce {
				t.Error("its stdin does not end with the session")
			}
		})
	}
}

// answering is a port that answers what it is sent with a text before it.
type answering struct{}

// PortForward implements portforward.PortForwarder.
func (answering) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	in, err := io.ReadAll(stream)
	if err == nil {
		_, err = fmt.Fprintf(stream, "%d says %s", port, in)
	}
	return err
}

// It serves many at once on both addresses, and ends with the pod.
func TestPortForward(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) { testPortForward(t, start) })
	}
}

func testPortForward(t *testing.T, start func(http.Handler) *httptest.Server) {
	n := newNode(t)
	s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, answering{}, "", "", &portforward.V4Options{}, time.Hour, time.Minute, portforward.SupportedProtocols)
	}))
	defer s.Close()
	n.url = s.URL
	n.certify(t, s.Certificate())
	var out, errOut buffer
	done := make(chan error, 1)
	go func() {
		done <- n.runTo(t.Context(), &out, &errOut, "", "port-forward", "web", ":7000", "--address", "127.0.0.1")
	}()
	var address string
	for end := time.Now().Add(time.Minute); address == ""; time.Sleep(time.Millisecond) {
		if line, whole := strings.CutSuffix(out.String(), " -> 7000\n"); whole {
			address = strings.TrimPrefix(line, "Forwarding from ")
		}
		if time.Now().After(end) {
			t.Fatalf("it does not listen: %q, %q", out.String(), errOut.String())
		}
	}
	ask := func(text string) error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, text); err != nil {
			return err
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		got, err := io.ReadAll(conn)
		if string(got) != "7000 says "+text {
			return fmt.Errorf("it answers %q, %w", got, err)
		}
		return err
	}
	answers := make(chan error)
	for i := range 20 {
		go func() { answers <- ask(strings.Repeat(fmt.Sprint(i), 10000)) }()
	}
	for range 20 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	_, port, _ := net.SplitHostPort(address)
	if got := strings.Count(out.String(), "Handling connection for "+port+"\n"); got != 20 {
		t.Errorf("it tells of %d connections", got)
	}
	n.agent.set(pod("web", "another", corev1.ConditionTrue))
	if err := <-done; err == nil || err.Error() != "lost connection to pod" {
		t.Errorf("error %v", err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it still listens")
	}
}

// kubectl ends port-forward by a signal, with success.
func TestPortForwardEndsWithTheUser(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if out, errOut, err := n.run(ctx, "", "port-forward", "web", ":1"); err != nil || !strings.HasPrefix(out, "Forwarding from 127.0.0.1:") {
		t.Errorf("%v, %q, %q", err, out, errOut)
	}
}

// cp asks for what kubectl asks for.
func TestCopyCommands(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	zero := func(io.Reader, io.Writer, io.Writer) int { return 0 }
	one := func(io.Reader, io.Writer, io.Writer) int { return 1 }
	says := func(code int, text string) func(io.Reader, io.Writer, io.Writer) int {
		return func(_ io.Reader, _, errs io.Writer) int { io.WriteString(errs, text); return code }
	}
	for _, tt := range []struct {
		args  []string
		runs  []func(io.Reader, io.Writer, io.Writer) int
		asked string // the commands
		fails string
	}{
		{args: []string{file, "web:/tmp"}, runs: []func(io.Reader, io.Writer, io.Writer) int{zero, zero}, asked: "test -d /tmp|tar -xmf - -C /tmp"},
		{args: []string{file, "web:/tmp/g"}, runs: []func(io.Reader, io.Writer, io.Writer) int{one, zero}, asked: "test -d /tmp/g|tar -xmf - -C /tmp"},
		{args: []string{"--no-preserve", file, "default/web:g"}, runs: []func(io.Reader, io.Writer, io.Writer) int{one, zero}, asked: "test -d g|tar --no-same-permissions --no-same-owner -xmf - -C ."},
		{args: []string{file, "web:/"}, runs: []func(io.Reader, io.Writer, io.Writer) int{zero}, asked: "tar -xmf - -C /"},
		{args: []string{file, "web:/"}, runs: []func(io.Reader, io.Writer, io.Writer) int{says(127, "tar: not found")}, asked: "tar -xmf - -C /", fails: `container "app" of pod "web" has no tar, which cp needs (tar: not found)`},
		{args: []string{file, "web:/"}, runs: []func(io.Reader, io.Writer, io.Writer) int{says(2, "no\x1b[2J room\n")}, asked: "tar -xmf - -C /", fails: "ended with exit code 2: no [2J room"},
		{args: []string{"web:/a/-b/", dir}, runs: []func(io.Reader, io.Writer, io.Writer) int{says(1, "none")}, asked: "tar cf - -C /a ./-b", fails: "exit code 1: none"},
		{args: []string{"web:/", dir}, runs: []func(io.Reader, io.Writer, io.Writer) int{one}, asked: "tar cf - -C / ./.", fails: "exit code 1"},
		{args: []string{"web:../x", dir}, runs: []func(io.Reader, io.Writer, io.Writer) int{one}, asked: "tar cf - -C .. ./x", fails: "exit code 1"},
		{args: []string{"web:link", dir}, runs: []func(io.Reader, io.Writer, io.Writer) int{zero}, asked: "tar cf - -C . ./link", fails: `"link" of container "app" is a link`},
		{args: []string{"web:x", dir}, runs: []func(io.Reader, io.Writer, io.Writer) int{func(_ io.Reader, out, _ io.Writer) int {
			for range 1 << 20 { // it goes on without end
				if _, err := out.Write(make([]byte, 4096)); err != nil {
					return 0
				}
			}
			return 0
		}}, asked: "tar cf - -C . ./x", fails: "data follows its end"},
	} {
		n := newNode(t)
		n.url = serveStreams(t, tt.runs...)
		_, _, err := n.run(t.Context(), "", append([]string{"cp", "-c", "app"}, tt.args...)...)
		if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.fails)
		}
		var asked []string
		for _, r := range n.exec {
			asked = append(asked, strings.Join(r.GetCmd(), " "))
			if r.GetContainerId() != "c-app" || r.GetTty() {
				t.Errorf("%q: asked for %+v", tt.args, r)
			}
		}
		if got := strings.Join(asked, "|"); got != tt.asked {
			t.Errorf("%q: asked %q, want %q", tt.args, got, tt.asked)
		}
	}
}

// Every command says which server it is for.
func TestCommandsHaveState(t *testing.T) {
	for _, c := range Commands(Places{State: "/run/x"}) {
		if !slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "state") }) {
			t.Errorf("%s has no --state", c.Name)
		}
	}
}
