package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sunaba-project/sunaba/pods/translate"
)

// check carries out a probe once. The context ends after the limit.
type check func(ctx context.Context, containerID string, limit time.Duration) outcome

// maker makes checks.
type maker struct {
	web   *web
	exec  Exec
	agent string // User-Agent
}

// check makes a probe ready to run. One that cannot be carried out says so each time it runs.
func (m *maker) check(spec *corev1.Probe, c *corev1.Container, ip string) check {
	var do check
	var err error
	switch {
	case spec.Exec != nil:
		do, err = m.command(spec.Exec, c)
	case spec.HTTPGet != nil:
		do, err = m.web.probe(spec.HTTPGet, c, ip, m.agent)
	case spec.TCPSocket != nil:
		do, err = tcp(spec.TCPSocket, c, ip)
	case spec.GRPC != nil:
		do, err = m.health(spec.GRPC, ip)
	default:
		err = fmt.Errorf("probe of container %q has no handler: %w", c.Name, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return func(context.Context, string, time.Duration) outcome { return outcome{verdict: unknown, err: err} }
	}
	return do
}

// resolve returns the address of a port, a number or the name of a port of the container, at a
// host, which is the pod's address unless one is given.
func resolve(host, ip string, port intstr.IntOrString, c *corev1.Container) (string, error) {
	if host == "" {
		host = ip
	}
	if host == "" {
		return "", fmt.Errorf("probe container %q: the pod has no address: %w", c.Name, errdefs.ErrFailedPrecondition)
	}
	number := int64(port.IntVal)
	if port.Type == intstr.String {
		var err error
		if number, err = named(port.StrVal, c); err != nil {
			return "", err
		}
	}
	if number < 1 || number > 65535 {
		return "", fmt.Errorf("invalid port number: %d: %w", number, errdefs.ErrInvalidArgument)
	}
	return net.JoinHostPort(host, strconv.FormatInt(number, 10)), nil
}

// named finds a port of the container by its name; a number as text is that number.
func named(name string, c *corev1.Container) (int64, error) {
	for _, p := range c.Ports {
		if p.Name == name {
			return int64(p.ContainerPort), nil
		}
	}
	n, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("container %q has no port with name %q: %w", c.Name, name, errdefs.ErrInvalidArgument)
	}
	return n, nil
}

// dial opens a connection. When it is closed, what is unsent gets a second.
func dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).SetLinger(1); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// tcp returns a check that passes if a connection opens.
func tcp(a *corev1.TCPSocketAction, c *corev1.Container, ip string) (check, error) {
	address, err := resolve(a.Host, ip, a.Port, c)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ string, _ time.Duration) outcome {
		conn, err := dial(ctx, address)
		if err != nil {
			return fail(err.Error())
		}
		conn.Close()
		return outcome{}
	}, nil
}

// execMargin is how much longer than its timeout an exec may take to be ended.
const execMargin = 2 * time.Second

// command returns a check that passes if a command in the container exits with 0. Its references to
// variables are those of the container with a plain value; others that it has are empty.
func (m *maker) command(a *corev1.ExecAction, c *corev1.Container) (check, error) {
	variables := map[string]string{}
	for _, e := range c.Env {
		variables[e.Name] = e.Value
	}
	command := make([]string, len(a.Command))
	for i, text := range a.Command {
		var err error
		if command[i], _, err = translate.Expand(text, variables); err != nil {
			return nil, fmt.Errorf("exec.command[%d]: %w", i, err)
		}
	}
	return func(ctx context.Context, containerID string, limit time.Duration) outcome {
		// The one who runs the command counts the time, so that it can end the command.
		longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit+execMargin)
		defer cancel()
		stopped := context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				cancel()
			}
		})
		defer stopped()
		stdout, stderr, exit, err := m.exec(longer, containerID, command, limit)
		switch {
		case err != nil && (errdefs.IsDeadlineExceeded(err) || status.Code(err) == codes.DeadlineExceeded):
			return fail(fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), limit))
		case err != nil:
			return outcome{verdict: unknown, err: err}
		case exit != 0:
			return fail(string(stdout[:min(len(stdout), maxOutput)]) + string(stderr[:min(len(stderr), maxOutput)]))
		}
		return outcome{}
	}, nil
}
