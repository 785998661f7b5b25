package annotation

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// Names of the annotations of components that answer HTTP requests.
const (
	HTTPPort        = "io.sunaba.http.port"        // 1 to 65535
	HTTPInstances   = "io.sunaba.http.instances"   // request or one
	HTTPTimeout     = "io.sunaba.http.timeout"     // of a request, "30s"; 0 = none
	HTTPMemory      = "io.sunaba.http.memory"      // of an instance, in bytes, or with Ki, Mi or Gi
	HTTPBody        = "io.sunaba.http.body"        // of a request, likewise
	HTTPConcurrency = "io.sunaba.http.concurrency" // instances at a time
	HTTPAccessLog   = "io.sunaba.http.access-log"  // true or false
)

// HTTPNames are the names of all of them.
func HTTPNames() []string {
	return []string{HTTPPort, HTTPInstances, HTTPTimeout, HTTPMemory, HTTPBody, HTTPConcurrency, HTTPAccessLog}
}

// Defaults and bounds of HTTP.
const (
	defaultConcurrency = 100
	maxConcurrency     = 1000
	defaultTimeout     = 10 * time.Minute
	maxTimeout         = 24 * time.Hour
	noTimeout          = -1
)

// HTTP is how a component answers HTTP requests. The zero value has the defaults.
type HTTP struct {
	Port        uint16        `json:"port,omitempty"`        // 0 = the container's first, or 8080
	Kept        bool          `json:"kept,omitempty"`        // one instance answers all requests, else each has its own
	Timeout     time.Duration `json:"timeout,omitempty"`     // of a request; 0 = the default, -1 = none
	Memory      uint64        `json:"memory,omitempty"`      // of an instance in bytes, 0 = the container's limit alone
	Body        uint64        `json:"body,omitempty"`        // of a request in bytes, 0 = no limit
	Concurrency int           `json:"concurrency,omitempty"` // 0 = the default
	NoAccessLog bool          `json:"noAccessLog,omitempty"` // no line for each request on standard output
}

// Seats is how many instances there are at a time.
func (h HTTP) Seats() int {
	switch {
	case h.Kept:
		return 1
	case h.Concurrency > 0:
		return h.Concurrency
	}
	return defaultConcurrency
}

// Time is how long a request may take, 0 = without end.
func (h HTTP) Time() time.Duration {
	switch h.Timeout {
	case 0:
		return defaultTimeout
	case noTimeout:
		return 0
	}
	return h.Timeout
}

// ReadHTTP reads the annotations of HTTP by their names; value returns "" for one that there is
// not. It returns the name of the one that cannot be read, too.
//
// # Errors
//
// ErrInvalidArgument for a value that cannot be read.
func ReadHTTP(value func(name string) string) (h HTTP, name string, err error) {
	readers := map[string]func(text string) error{
		HTTPPort: func(text string) error {
			n, err := number(text, 1, math.MaxUint16)
			h.Port = uint16(n)
			return err
		},
		HTTPInstances: func(text string) (err error) {
			h.Kept, err = either(text, "request", "one")
			return err
		},
		HTTPTimeout: func(text string) error {
			d, err := time.ParseDuration(text)
			if err != nil || d < 0 || d > maxTimeout {
				return fmt.Errorf("%q is not a duration from 0 to %s", text, maxTimeout)
			}
			if h.Timeout = d; d == 0 {
				h.Timeout = noTimeout
			}
			return nil
		},
		HTTPMemory: func(text string) (err error) {
			h.Memory, err = size(text)
			return err
		},
		HTTPBody: func(text string) (err error) {
			h.Body, err = size(text)
			return err
		},
		HTTPConcurrency: func(text string) error {
			n, err := number(text, 1, maxConcurrency)
			h.Concurrency = int(n)
			return err
		},
		HTTPAccessLog: func(text string) (err error) {
			h.NoAccessLog, err = either(text, "true", "false")
			return err
		},
	}
	for _, name := range HTTPNames() {
		if text := value(name); text != "" {
			if err := readers[name](text); err != nil {
				return HTTP{}, name, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
			}
		}
	}
	return h, "", nil
}

// annotations adds those that are not as they are by default.
func (h HTTP) annotations(to map[string]string) {
	if h.Port != 0 {
		to[HTTPPort] = strconv.Itoa(int(h.Port))
	}
	if h.Kept {
		to[HTTPInstances] = "one"
	}
	if h.Timeout != 0 {
		to[HTTPTimeout] = max(h.Timeout, 0).String()
	}
	if h.Memory != 0 {
		to[HTTPMemory] = strconv.FormatUint(h.Memory, 10)
	}
	if h.Body != 0 {
		to[HTTPBody] = strconv.FormatUint(h.Body, 10)
	}
	if h.Concurrency != 0 {
		to[HTTPConcurrency] = strconv.Itoa(h.Concurrency)
	}
	if h.NoAccessLog {
		to[HTTPAccessLog] = "false"
	}
}

func number(text string, least, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a number from %d to %d", text, least, most)
	}
	return n, nil
}

// either reads one of two words, and says whether it is the second.
func either(text, one, other string) (bool, error) {
	if text != one && text != other {
		return false, fmt.Errorf("%q is neither %s nor %s", text, one, other)
	}
	return text == other, nil
}

// size reads a number of bytes.
func size(text string) (uint64, error) {
	digits, unit := text, uint64(1)
	for i, suffix := range []string{"Ki", "Mi", "Gi"} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a number of bytes above 0, or one with Ki, Mi or Gi", text)
	}
	return n * unit, nil
}
