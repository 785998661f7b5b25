package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Exporters and protocols that this build has.
const (
	exporterOTLP = "otlp"
	exporterNone = "none"
	protobuf     = "http/protobuf"
	inJSON       = "http/json"
)

// environment is the program's, a map in tests.
type environment func(name string) string

// wanted says whether spans are to be recorded: where an endpoint of OTLP is named, or the
// exporter.
//
// # Errors
//
// What this build does not have, and what cannot be meant: the server is not to run for weeks until
// somebody sees that there are no traces.
func (env environment) wanted() (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := strings.TrimSpace(env("OTEL_TRACES_EXPORTER")); exporter {
	case exporterNone:
		return false, nil
	case "":
		if env.otlp("ENDPOINT") == "" {
			return false, nil
		}
	case exporterOTLP:
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: there are %q and %q", exporter, exporterOTLP, exporterNone)
	}
	return true, errors.Join(env.protocol(), env.endpoint(), env.certificates())
}

// otlp is a variable of OTLP's exporter: that of traces, or else that of all signals.
func (env environment) otlp(name string) string {
	if own := env("OTEL_EXPORTER_OTLP_TRACES_" + name); own != "" {
		return own
	}
	return env("OTEL_EXPORTER_OTLP_" + name)
}

func (env environment) protocol() error {
	switch p := env.otlp("PROTOCOL"); p {
	case "", protobuf, inJSON:
		return nil
	default:
		return fmt.Errorf("the protocol of OTLP is %q: there are %q and %q, mostly at port 4318 of a collector", p, protobuf, inJSON)
	}
}

// endpoint looks at the address, of which an error says nothing but its variable: it may have a
// password.
func (env environment) endpoint() error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		text := env(name)
		if text == "" {
			continue
		}
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%s is no address: want one such as http://localhost:4318", name)
		}
	}
	return nil
}

// certificates reads the files that the exporter reads, which leaves out those that it cannot use.
func (env environment) certificates() error {
	if file := env.otlp("CERTIFICATE"); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read certificate of OTLP: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(data) {
			return fmt.Errorf("read certificate of OTLP %q: no certificate found", file)
		}
	}
	certificate, key := env.otlp("CLIENT_CERTIFICATE"), env.otlp("CLIENT_KEY")
	if certificate == "" && key == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
		return fmt.Errorf("read client certificate of OTLP: %w", err)
	}
	return nil
}
