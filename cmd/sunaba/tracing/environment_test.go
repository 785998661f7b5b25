package tracing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatTheEnvironmentAsksFor(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, c := range []struct {
		env  map[string]string
		on   bool
		fail string
	}{
		{},
		{env: map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}},
		{env: map[string]string{endpoint: "http://localhost:4318"}, on: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector/v1/traces"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "none", endpoint: "http://localhost:4318"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, on: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, fail: `OTEL_TRACES_EXPORTER is "zipkin": there are "otlp" and "none"`},
		{env: map[string]string{endpoint: "http://h:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, fail: `"http/protobuf"`},
		{env: map[string]string{endpoint: "http://h:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, on: true},
		{env: map[string]string{endpoint: "localhost:4318"}, fail: endpoint},
		{env: map[string]string{endpoint: "unix:///run/collector.sock"}, fail: endpoint},
		{env: map[string]string{endpoint: "http://h", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"}, fail: "/nowhere"},
		{env: map[string]string{endpoint: "http://h", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/nowhere"}, fail: "client certificate"},
	} {
		on, err := environment(func(name string) string { return c.env[name] }).wanted()
		switch {
		case c.fail == "" && (err != nil || on != c.on):
			t.Errorf("%v: %v, %v, want %v", c.env, on, err, c.on)
		case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
			t.Errorf("%v: error %v, want %s", c.env, err, c.fail)
		}
	}
}

// Addresses may have a password.
func TestErrorsOfTheEndpointDoNotShowIt(t *testing.T) {
	env := environment(func(name string) string {
		if strings.HasSuffix(name, "_ENDPOINT") {
			return "ftp://user:secret@host"
		}
		return ""
	})
	if _, err := env.wanted(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}

func TestCertificateFileWithoutACertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := environment(func(name string) string {
		return map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": file}[name]
	})
	if _, err := env.wanted(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v", err)
	}
}
