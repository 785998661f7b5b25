package guest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/serve"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// answers says whether the guest answers HTTP requests: a further process of such a component's
// container runs its command.
func (p *process) answers() bool { return p.config.Load.HTTP && !p.config.Further }

// client sends the requests of guests.
func (p *process) client() *wasihttp.Client {
	return wasihttp.NewClient(p.clientConfig())
}

func (p *process) clientConfig() wasihttp.ClientConfig {
	c := wasihttp.ClientConfig{Root: p.guest.root.fd}
	for _, variable := range p.config.Env {
		if file, is := strings.CutPrefix(variable, "SSL_CERT_FILE="); is {
			c.CertFile = file
		}
	}
	return c
}

// httpGuest is a component that answers HTTP requests. It implements host.
type httpGuest struct {
	process   *process
	component *serve.Component
	first     *serve.Instance // that it was tried with
	server    *serve.Server
}

func (p *process) newHTTPGuest(h *wasip2.Host) *httpGuest {
	g := &p.guest
	return &httpGuest{process: p, component: &serve.Component{
		Context: g.ctx, Runtime: g.runtime, Compiled: g.compiled, Host: h, Extension: p.client(),
	}}
}

// try makes an instance, so that what is wrong with the component is known before it is created.
// The first request gets it.
func (h *httpGuest) try() error {
	var err error
	if h.first, err = h.component.Instantiate(); err != nil {
		return uninstantiated(err)
	}
	return nil
}

// Hears implements host: it has a listener.
func (h *httpGuest) Hears() bool { return true }

// Interrupt implements host.
func (h *httpGuest) Interrupt() { h.server.Drain() }

// listen opens the port and makes the server.
func (h *httpGuest) listen(ports []port) error {
	if len(ports) != 1 {
		return fmt.Errorf("listen: %d ports for one server", len(ports))
	}
	if err := unix.Listen(ports[0].fd, backlog); err != nil {
		return takenError(ports[0].wanted, err)
	}
	f := os.NewFile(uintptr(ports[0].fd), "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("take listener: %w", err)
	}
	c := h.process.config.HTTP
	instances := serve.NewInstances(h.component, h.first, serve.Options{
		Kept: c.Kept, Concurrency: min(c.Seats(), max(h.process.guest.memory.Seats(), 1)), Overrun: h.overrun,
	})
	var access io.Writer
	if !c.NoAccessLog {
		access = os.Stdout
	}
	handler := &wasihttp.Handler{Instances: instances, Limits: wasihttp.Limits{Time: c.Time(), Body: int64(c.Body)}, Log: h.log}
	h.server = serve.NewServer(l.(*net.TCPListener), handler, access, h.process.guest.rest, h.process.guest.pace.follow)
	return nil
}

// serve answers requests until it was interrupted.
func (h *httpGuest) serve() error { return h.server.Serve() }

// log tells why a request has failed: the first line of an error, and the stack of a trap.
func (h *httpGuest) log(r *http.Request, err error) {
	stack, _ := h.process.trapText(err)
	fmt.Fprintf(os.Stderr, "sunaba: answer %s %.1024s: %s\n", r.Method, r.URL.EscapedPath(), stack)
}

// overrun ends the process of a guest that was ended and computes on.
func (h *httpGuest) overrun(reason error) {
	text := fmt.Sprintf("the guest continued to compute after it was ended: %v", reason)
	fmt.Fprintln(os.Stderr, "sunaba:", text)
	os.Exit(h.process.end(exitTrap, text))
}
