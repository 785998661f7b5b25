package container

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const defaultSignal = "SIGTERM"

// stopSignal chooses a container's stop signal: the configuration's, else the image's, else
// SIGTERM. An unknown one counts as none.
func stopSignal(config runtime.Signal, image string) string {
	if config != runtime.Signal_SIGNAL_RUNTIME_DEFAULT {
		name := strings.TrimPrefix(config.String(), "SIGNAL_")
		name = strings.ReplaceAll(strings.ReplaceAll(name, "PLUS", "+"), "MINUS", "-")
		if _, err := parseSignal(name); err == nil {
			return name
		}
	}
	if _, err := parseSignal(image); err == nil {
		return image
	}
	return defaultSignal
}

// real-time signals as the C library numbers them: it keeps two for itself.
const (
	rtMin = 34
	rtMax = 64
)

// parseSignal reads a signal as images write it: "SIGTERM", "TERM", "15", "SIGRTMIN+3", "RTMAX-1".
func parseSignal(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > rtMax {
			return 0, fmt.Errorf("signal %q is not between 1 and %d", text, rtMax)
		}
		return syscall.Signal(n), nil
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	switch name {
	case "SIGCLD":
		name = "SIGCHLD"
	case "SIGIOT":
		name = "SIGABRT"
	case "SIGPOLL":
		name = "SIGIO"
	}
	for _, base := range []struct {
		name string
		n    int
	}{{"SIGRTMIN", rtMin}, {"SIGRTMAX", rtMax}} {
		rest, ok := strings.CutPrefix(name, base.name)
		if !ok {
			continue
		}
		n := 0
		if rest != "" {
			var err error
			if n, err = strconv.Atoi(rest); err != nil {
				break
			}
		}
		if n += base.n; n >= rtMin && n <= rtMax {
			return syscall.Signal(n), nil
		}
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, fmt.Errorf("signal %q is not known", text)
}

// Signal is the CRI's name of a signal as an image or a record has it, the default for one that is
// not known.
func Signal(text string) runtime.Signal {
	n, err := parseSignal(text)
	if err != nil {
		return runtime.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := unix.SignalName(n)
	switch {
	case n == rtMax:
		name = "SIGRTMAX"
	case n > rtMin+15:
		name = fmt.Sprintf("SIGRTMAXMINUS%d", rtMax-int(n))
	case n > rtMin:
		name = fmt.Sprintf("SIGRTMINPLUS%d", int(n)-rtMin)
	case n == rtMin:
		name = "SIGRTMIN"
	}
	return runtime.Signal(runtime.Signal_value["SIGNAL_"+name])
}
