package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/forward"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/objects"
	"github.com/sunaba-project/sunaba/pods/api"
)

const (
	// maxForwards bounds how many connections are forwarded at once; further clients wait.
	maxForwards = 128
	// acceptPause is the pause after an error of a listener, as when there are too many open files.
	acceptPause = 100 * time.Millisecond
)

func (p commands) portForwardCommand() *cli.Command {
	return &cli.Command{
		Name:        "port-forward",
		Usage:       "listen on ports of this machine and pass connections on to ports of a pod",
		ArgsUsage:   "POD [LOCAL:]REMOTE...",
		Description: "LOCAL without a number (:REMOTE) is any port that is free. REMOTE is a number or a port's name. Ends with the pod.",
		Flags: []cli.Flag{
			objects.NamespaceFlag(), criFlag(),
			&cli.StringSliceFlag{Name: "address", Usage: "`ADDRESS` to listen on: IP addresses or localhost, which is 127.0.0.1 and ::1", Value: []string{"localhost"}},
		},
		Action: objects.WithAgent(p.portForward),
	}
}

// portPair is a port here and the one of the pod.
type portPair struct{ local, remote uint16 }

// portPairs reads arguments: "PORT", "LOCAL:REMOTE" or ":REMOTE".
func portPairs(p *corev1.Pod, args []string) ([]portPair, error) {
	var pairs []portPair
	for _, arg := range args {
		local, remote, both := strings.Cut(arg, ":")
		if !both {
			remote = local
		}
		var pair portPair
		var err error
		if pair.remote, err = remotePort(p, remote); err != nil {
			return nil, err
		}
		switch {
		case !both:
			pair.local = pair.remote
		case local != "":
			n, err := strconv.ParseUint(local, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("local port %q is not a number from 0 to 65535", local)
			}
			pair.local = uint16(n)
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

func remotePort(p *corev1.Pod, text string) (uint16, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 {
		return uint16(n), nil
	}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, port := range c.Ports {
			if text != "" && port.Name == text {
				return uint16(port.ContainerPort), nil
			}
		}
	}
	return 0, fmt.Errorf("remote port %q is neither a number from 1 to 65535 nor the name of a port of pod %q", text, p.Name)
}

func (p commands) portForward(ctx context.Context, cmd *cli.Command, c *api.Client) (err error) {
	if cmd.NArg() < 2 {
		return errors.New("port-forward: TYPE/NAME and list of ports are required for port-forward")
	}
	name, err := objects.PodName(cmd.Args().First())
	if err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	pod, err := objects.FindPod(ctx, c, cmd.String("namespace"), name)
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("port-forward: unable to forward port because pod is not running. Current status=%s", pod.Status.Phase)
	}
	pairs, err := portPairs(pod, cmd.Args().Tail())
	if err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	server, err := p.connect(ctx, cmd, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	f := &forwarder{
		server: server, pod: pod, places: make(chan struct{}, maxForwards),
		out: &lockedWriter{w: cmd.Root().Writer}, errOut: &lockedWriter{w: cmd.Root().ErrWriter},
	}
	defer f.close()
	for _, pair := range pairs {
		if err := f.listen(pair, cmd.StringSlice("address")); err != nil {
			return fmt.Errorf("port-forward: %w", err)
		}
	}
	return f.run(ctx, c)
}

// forwarder passes connections on to a pod.
type forwarder struct {
	server      *criServer
	pod         *corev1.Pod
	out, errOut io.Writer
	places      chan struct{} // one for each connection
	listeners   []listener
}

type listener struct {
	*net.TCPListener
	remote uint16
}

// listen listens for a pair of ports on all addresses. Of localhost's, one is enough.
func (f *forwarder) listen(pair portPair, addresses []string) error {
	for _, address := range addresses {
		ips, all := []string{address}, true
		switch {
		case address == "localhost":
			ips, all = []string{"127.0.0.1", "::1"}, false
		case net.ParseIP(address) == nil:
			return fmt.Errorf("address %q is neither an IP address nor localhost", address)
		}
		var errs []error
		for _, ip := range ips {
			l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(int(pair.local))))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			tcp := l.(*net.TCPListener)
			f.listeners = append(f.listeners, listener{tcp, pair.remote})
			pair.local = uint16(tcp.Addr().(*net.TCPAddr).Port) // the next address has the same
			if _, err := fmt.Fprintf(f.out, "Forwarding from %s -> %d\n", l.Addr(), pair.remote); err != nil {
				return err
			}
		}
		if len(errs) == len(ips) || all && len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
	return nil
}

func (f *forwarder) close() {
	for _, l := range f.listeners {
		_ = l.Close() // it may be closed already
	}
}

// run passes connections on until ctx or the pod ends.
func (f *forwarder) run(ctx context.Context, c *api.Client) error {
	serving, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer f.close()
	defer stop()
	for _, l := range f.listeners {
		group.Go(func() { f.accept(serving, l, &group) })
	}
	err := objects.Until(ctx, c, objects.Pod(f.pod.Name), f.pod.Namespace, func(now []json.RawMessage) bool {
		return !slices.ContainsFunc(now, func(raw json.RawMessage) bool {
			var p corev1.Pod
			return json.Unmarshal(raw, &p) == nil && p.UID == f.pod.UID && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
		})
	})
	switch {
	case ctx.Err() != nil:
		return nil // the user has done what it was for
	case err != nil:
		return err
	}
	return errors.New("lost connection to pod")
}

func (f *forwarder) accept(ctx context.Context, l listener, group *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			fmt.Fprintf(f.errOut, "error accepting connection on port %d: %v\n", l.local(), err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		select {
		case f.places <- struct{}{}:
		case <-ctx.Done():
			_ = conn.Close() // nothing was written to it
			return
		}
		group.Go(func() {
			defer func() { <-f.places }()
			fmt.Fprintf(f.out, "Handling connection for %d\n", l.local())
			if err := f.forward(ctx, l.remote, conn); err != nil && ctx.Err() == nil {
				fmt.Fprintf(f.errOut, "an error occurred forwarding %d -> %d: %s\n", l.local(), l.remote, oneLine(err.Error()))
			}
		})
	}
}

func (l listener) local() int { return l.Addr().(*net.TCPAddr).Port }

// forward passes one connection on and closes it.
func (f *forwarder) forward(ctx context.Context, port uint16, conn net.Conn) error {
	url, err := f.ask(ctx, port)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return forward.Carry(ctx, url, f.server.tls, port, conn)
}

// ask asks for where the pod's port is reached. The pod's sandbox may be another one than before.
func (f *forwarder) ask(ctx context.Context, port uint16) (string, error) {
	list, err := f.server.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
		State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return "", dial.Native(err)
	}
	at := slices.IndexFunc(list.GetItems(), func(s *runtime.PodSandbox) bool {
		m := s.GetMetadata()
		return m.GetUid() == string(f.pod.UID) && m.GetName() == f.pod.Name && m.GetNamespace() == f.pod.Namespace
	})
	if at < 0 {
		return "", fmt.Errorf("pod %q has no sandbox that is ready", f.pod.Name)
	}
	resp, err := f.server.PortForward(ctx, &runtime.PortForwardRequest{PodSandboxId: list.GetItems()[at].GetId(), Port: []int32{int32(port)}})
	return resp.GetUrl(), dial.Native(err)
}
