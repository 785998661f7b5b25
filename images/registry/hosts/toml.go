package hosts

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// hostTable is what hosts.toml says about one server.
type hostTable struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`
	Client       any            `toml:"client"`
	SkipVerify   bool           `toml:"skip_verify"`
	Header       map[string]any `toml:"header"`
	OverridePath bool           `toml:"override_path"`
	DialTimeout  string         `toml:"dial_timeout"`
}

// hostsFile is a hosts.toml.
type hostsFile struct {
	Server string `toml:"server"`
	hostTable
	Host map[string]hostTable `toml:"host"`
}

// parseHosts reads a hosts.toml as containerd does, but takes nothing that it
// does not understand for granted.
//
// # Errors
//
// ErrFailedPrecondition, with the file and, where one is to blame, the host.
func parseHosts(file string, data []byte) ([]Config, error) {
	bad := func(err error) ([]Config, error) {
		return nil, fmt.Errorf("read %s: %w: %w", file, err, errdefs.ErrFailedPrecondition)
	}
	var f hostsFile
	dec := toml.NewDecoder(strings.NewReader(string(data))).DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return bad(located(err))
	}
	order, err := hostOrder(data)
	if err != nil {
		return bad(err)
	}
	var out []Config
	for _, name := range order {
		t, ok := f.Host[name]
		if !ok {
			continue
		}
		h, err := t.config(name, filepath.Dir(file))
		if err != nil {
			return bad(fmt.Errorf("host %q: %w", sanitise(name), err))
		}
		if h.Host == "" {
			return bad(fmt.Errorf("host %q is not the name of a host", sanitise(name)))
		}
		out = append(out, h)
	}
	server, err := f.config(f.Server, filepath.Dir(file))
	if err != nil {
		return bad(fmt.Errorf("server %q: %w", sanitise(f.Server), err))
	}
	return append(out, server), nil
}

// located puts the line before a complaint about TOML.
func located(err error) error {
	if missing, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(missing.Errors) > 0 {
		line, _ := missing.Errors[0].Position()
		return fmt.Errorf("line %d: unknown field %q", line, strings.Join(missing.Errors[0].Key(), "."))
	}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := decode.Position()
		return fmt.Errorf("line %d: %s", line, strings.TrimPrefix(decode.Error(), "toml: "))
	}
	return err
}

// hostOrder returns the keys of the table "host" in the order of the file, which
// is the order in which they are asked and which a map does not keep.
func hostOrder(data []byte) ([]string, error) {
	var order []string
	seen := make(map[string]bool)
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			order = append(order, name)
		}
	}
	var p unstable.Parser
	p.Reset(data)
	inHosts := false // below the header [host]
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.KeyValue {
			continue
		}
		var key []string
		for it := e.Key(); it.Next(); {
			key = append(key, string(it.Node().Data))
		}
		switch table := e.Kind == unstable.Table; {
		case table:
			inHosts = len(key) == 1 && key[0] == "host"
			if len(key) > 1 && key[0] == "host" {
				add(key[1])
			}
		case inHosts && len(key) > 0:
			add(key[0])
		case len(key) > 1 && key[0] == "host":
			add(key[1])
		}
	}
	return order, p.Error()
}

// config makes a Config of a table; files are relative to dir.
func (t hostTable) config(server, dir string) (Config, error) {
	h := Config{Header: http.Header{}}
	if server != "" {
		if err := h.setServer(server, t.OverridePath); err != nil {
			return h, err
		}
	}
	h.Pull, h.Resolve = len(t.Capabilities) == 0, len(t.Capabilities) == 0
	for _, c := range t.Capabilities {
		switch strings.ToLower(c) {
		case "pull":
			h.Pull = true
		case "resolve":
			h.Resolve = true
		case "push", "referrers": // nothing here does either
		default:
			return h, fmt.Errorf("unknown capability %q", c)
		}
	}
	var err error
	if h.TLS, err = t.files(dir); err != nil {
		return h, err
	}
	for k, v := range t.Header {
		values, err := texts(v)
		if err != nil {
			return h, fmt.Errorf("header %q %w", k, err)
		}
		h.Header[http.CanonicalHeaderKey(k)] = values
	}
	if t.DialTimeout != "" {
		if h.DialTimeout, err = time.ParseDuration(t.DialTimeout); err != nil || h.DialTimeout <= 0 {
			return h, fmt.Errorf("dial_timeout %q is not a duration such as \"10s\"", t.DialTimeout)
		}
	}
	return h, nil
}

func (h *Config) setServer(server string, override bool) error {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := parseURL(server)
	if err != nil {
		return err
	}
	h.Scheme, h.Host = u.Scheme, u.Host
	h.Path = path.Clean("/" + u.Path)
	if !override && path.Base(h.Path) != "v2" {
		h.Path = path.Join(h.Path, "v2")
	}
	return nil
}

// files reads the fields "ca" (a file or a list of files) and "client" (a file
// or a list of files and of pairs of a certificate and its key).
func (t hostTable) files(dir string) (TLS, error) {
	f := TLS{SkipVerify: t.SkipVerify}
	at := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	if t.CA != nil {
		names, err := texts(t.CA)
		if err != nil {
			return f, fmt.Errorf("ca %w", err)
		}
		for _, n := range names {
			f.CA = append(f.CA, at(n))
		}
	}
	var pairs []any
	switch c := t.Client.(type) {
	case nil:
	case string:
		pairs = []any{c}
	case []any:
		pairs = c
	default:
		return f, errors.New("client is neither a file nor a list")
	}
	for _, p := range pairs {
		names, err := texts(p)
		if err != nil || len(names) > 2 || len(names) == 0 {
			return f, errors.New("client holds something that is neither a file nor a pair of files")
		}
		pair := [2]string{at(names[0]), ""}
		if len(names) == 2 {
			pair[1] = at(names[1])
		}
		f.Client = append(f.Client, pair)
	}
	return f, nil
}

// texts takes a string for a list of one.
func texts(v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		return []string{v}, nil
	case []any:
		var out []string
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, errors.New("holds a value that is not a string")
			}
			out = append(out, s)
		}
		return out, nil
	}
	return nil, errors.New("is neither a text nor a list of texts")
}
