package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// Where critest's constants look for images. The mirror has them by their paths.
const (
	e2e     = "e2e-test-images/"
	staging = "k8s-staging-cri-tools/"
)

// sandboxImage is a runtime's own, for one that needs it; it is another than critest's pause:3.9.
const sandboxImage = "sandbox:1"

// mirrored are the hosts in critest's constants.
var mirrored = []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io"}

// packer packs critest's images and pushes them to the mirror.
type packer struct {
	ctx      context.Context
	sources  string // tests/critest
	debian   string // what fetch.sh made
	mirror   *oci.Registry
	platform v1.Platform
	busybox  v1.Layer
}

// pushImages packs and pushes everything that critest pulls. It returns the digest of
// test-image-digest.
func pushImages(ctx context.Context, mirror *oci.Registry, sources, debian string) (string, error) {
	p := packer{ctx: ctx, sources: sources, debian: debian, mirror: mirror, platform: oci.Host()}
	layer, err := p.busyboxLayer()
	if err != nil {
		return "", err
	}
	p.busybox = layer
	for _, step := range []func() error{p.pushBusybox, p.pushPrograms, p.pushServers, p.pushTestImages, p.pushUsers} {
		if err := step(); err != nil {
			return "", err
		}
	}
	return p.pushDigest()
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n"
	group  = "root:x:0:\nwww-data:x:33:\nnobody:x:65534:\n"
)

// busyboxLayer has every applet as a hard link: tests mask one of them and read what the shell says
// then.
func (p *packer) busyboxLayer() (v1.Layer, error) {
	file := filepath.Join(p.debian, "busybox")
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	applets, err := exec.CommandContext(p.ctx, file, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list busybox's applets: %w", err)
	}
	files := []oci.File{
		oci.Dir("bin", 0o755), oci.Dir("dev", 0o755), oci.Dir("etc", 0o755), oci.Dir("home", 0o755), oci.Dir("mnt", 0o755),
		oci.Dir("proc", 0o755), oci.Dir("root", 0o700), oci.Dir("run", 0o755), oci.Dir("sys", 0o755), oci.Dir("tmp", 0o1777),
		oci.Dir("var", 0o755), oci.Dir("var/run", 0o755), oci.Dir("var/www", 0o755),
		oci.Text("etc/passwd", passwd), oci.Text("etc/group", group),
		oci.Program("bin/busybox", program),
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			files = append(files, oci.Hardlink("bin/"+applet, "bin/busybox"))
		}
	}
	return oci.Layer(files...)
}

// image packs files on top of busybox.
func (p *packer) image(config v1.Config, files ...oci.File) (v1.Image, error) {
	layers := []v1.Layer{p.busybox}
	if len(files) > 0 {
		layer, err := oci.Layer(files...)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	if len(config.Cmd) == 0 && len(config.Entrypoint) == 0 {
		config.Cmd = []string{"sh"}
	}
	config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return oci.Image(p.platform, config, layers...)
}

// push pushes an image under several names.
func (p *packer) push(image v1.Image, err error, names ...string) error {
	for _, name := range names {
		if err == nil {
			_, err = p.mirror.Push(p.ctx, name, image)
		}
	}
	return err
}

// pushIndex pushes an image as the only one of an index, which is returned.
func (p *packer) pushIndex(image v1.Image, err error, name string) (v1.ImageIndex, error) {
	if err != nil {
		return nil, err
	}
	index, err := oci.Index(oci.Variant{Platform: p.platform, Image: image})
	if err != nil {
		return nil, err
	}
	_, err = p.mirror.PushIndex(p.ctx, name, index)
	return index, err
}

func (p *packer) pushBusybox() error {
	image, err := p.image(v1.Config{})
	_, err = p.pushIndex(image, err, e2e+"busybox:1.29-2")
	return err
}

// pushPrograms packs the programs beside this file.
func (p *packer) pushPrograms() error {
	built := map[string][]byte{}
	for _, name := range []string{"httpd", "nonewprivs", "pause"} {
		program, err := oci.BuildGo(p.ctx, filepath.Join(p.sources, name), p.platform)
		if err != nil {
			return err
		}
		built[name] = program
	}
	image, err := p.image(v1.Config{Entrypoint: []string{"/httpd"}, ExposedPorts: map[string]struct{}{"80/tcp": {}}}, oci.Program("httpd", built["httpd"]))
	if err := p.push(image, err, e2e+"httpd:2.4.39-4"); err != nil {
		return err
	}
	image, err = p.image(v1.Config{Entrypoint: []string{"/nnp"}}, oci.File{Name: "nnp", Body: built["nonewprivs"], Mode: 0o4755})
	if err := p.push(image, err, e2e+"nonewprivs:1.3"); err != nil {
		return err
	}
	layer, err := oci.Layer(oci.Program("pause", built["pause"]))
	if err != nil {
		return err
	}
	image, err = oci.Image(p.platform, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}, layer)
	if _, err = p.pushIndex(image, err, "pause:3.9"); err != nil {
		return err
	}
	image, err = oci.Image(p.platform, v1.Config{Entrypoint: []string{"/pause"}}, layer)
	return p.push(image, err, sandboxImage)
}

func (p *packer) pushServers() error {
	files, err := nginx(filepath.Join(p.debian, "nginx"))
	if err != nil {
		return err
	}
	for name, port := range map[string]int{e2e + "nginx:1.14-2": 80, staging + "hostnet-nginx-" + runtime.GOARCH + ":latest": 12003} {
		config := v1.Config{Cmd: []string{"nginx", "-g", "daemon off;"}, StopSignal: "SIGQUIT"}
		image, err := p.image(config, append(files, oci.Text("etc/nginx/nginx.conf", fmt.Sprintf(nginxConf, port)))...)
		if err := p.push(image, err, name); err != nil {
			return err
		}
	}
	return nil
}

// pushTestImages packs images that differ by one file, and one image with several tags.
func (p *packer) pushTestImages() error {
	for file, names := range map[string][]string{
		"test-image-1":      {"test-image-1:latest"},
		"test-image-2":      {"test-image-2:latest"},
		"test-image-3":      {"test-image-3:latest"},
		"test-image-latest": {"test-image-latest:latest"},
		"same-image":        {"test-image-tags:1", "test-image-tags:2", "test-image-tags:3"},
		"test":              {"test-image-tag:test"},
		"all":               {"test-image-tag:all"},
	} {
		for i := range names {
			names[i] = staging + names[i]
		}
		image, err := p.image(v1.Config{}, oci.Text(file, ""))
		if err := p.push(image, err, names...); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) pushUsers() error {
	for name, user := range map[string]string{
		"test-image-user-uid": "1002", "test-image-user-username": "www-data",
		"test-image-user-uid-group": "1003:1004", "test-image-user-username-group": "www-data:1004",
	} {
		image, err := p.image(v1.Config{User: user})
		if err := p.push(image, err, staging+name+":latest"); err != nil {
			return err
		}
	}
	image, err := p.image(v1.Config{User: "1000"},
		oci.Text("etc/passwd", passwd+"default-user:x:1000:1000:Linux User,,,:/home/default-user:/bin/sh\n"),
		oci.Text("etc/group", group+"default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"))
	return p.push(image, err, staging+"test-image-predefined-group:latest")
}

func (p *packer) pushDigest() (string, error) {
	image, err := p.image(v1.Config{}, oci.Text("test-image-digest", ""))
	index, err := p.pushIndex(image, err, staging+"test-image-digest:latest")
	if err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return digest.Hex, err
}
