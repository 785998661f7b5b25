package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// demo is what the acts share.
type demo struct {
	ctx             context.Context
	out             io.Writer
	bin, crictlPath string
	dir             string
	registry        *oci.Registry
	node            *node.Node
	greeter, batch  string // image references
	overheads       []overhead
	missed          int // goals
}

// heading starts an act.
func (d *demo) heading(format string, args ...any) {
	fmt.Fprintf(d.out, "\n== "+format+"\n", args...)
}

// say prints one line of what happens.
func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, "   "+format+"\n", args...) }

// crictl shows a crictl command, runs it, shows what it prints and returns it.
func (d *demo) crictl(args ...string) (string, error) { return d.show("crictl", d.crictlPath, args) }

// show runs a command and prints it with its output.
func (d *demo) show(name, program string, args []string) (string, error) {
	fmt.Fprintf(d.out, " $ %s %s\n", name, d.short(strings.Join(args, " ")))
	out, err := d.quiet(program, args)
	for line := range strings.Lines(out) {
		d.say("%s", strings.TrimRight(line, "\n"))
	}
	return strings.TrimSpace(out), err
}

// quiet runs a command without a word.
func (d *demo) quiet(program string, args []string) (string, error) {
	cmd := exec.CommandContext(d.ctx, program, args...)
	cmd.Env = append(os.Environ(), "CONTAINER_RUNTIME_ENDPOINT=unix://"+d.socket(),
		"IMAGE_SERVICE_ENDPOINT=unix://"+d.socket(), "CRI_CONFIG_FILE="+d.path("crictl.yaml"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func (d *demo) socket() string { return d.path("node/sunaba.sock") }

func (d *demo) path(name string) string { return d.dir + "/" + name }

// short makes a command readable: the demo's folder and long ids are cut.
func (d *demo) short(text string) string {
	words := strings.Fields(strings.ReplaceAll(text, d.dir+"/", ""))
	for i, word := range words {
		if len(word) == 64 && strings.Trim(word, "0123456789abcdef") == "" {
			words[i] = word[:13]
		}
	}
	return strings.Join(words, " ")
}

// expect is an error unless the text holds what it should.
func expect(what, got, want string) error {
	if !strings.Contains(got, want) {
		return fmt.Errorf("%s: %q, want %q in it", what, got, want)
	}
	return nil
}
