// Command tiny is a CNI plugin for the tests: a veth pair with one IPv4 address, an attachment file
// per pod, and a log of every call. Its configuration says where it works and where it fails.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

type config struct {
	CNIVersion    string          `json:"cniVersion"`
	Name          string          `json:"name"`
	Dir           string          `json:"dir"`  // attachments and log
	Fail          []string        `json:"fail"` // commands that fail, after they did their work
	NoAddress     bool            `json:"noAddress"`
	NoSandbox     bool            `json:"noSandbox"` // the pod's interface is told by its name alone
	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	PrevResult    json.RawMessage `json:"prevResult"`
	Valid         []struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	} `json:"cni.dev/valid-attachments"`
}

func main() {
	if err := run(os.Getenv("CNI_COMMAND")); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": "1.1.0", "code": 50, "msg": err.Error()})
		os.Exit(1)
	}
}

func run(command string) error {
	if command == "VERSION" {
		fmt.Println(`{"cniVersion": "1.1.0", "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"]}`)
		return nil
	}
	var c config
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(stdin, &c); err != nil {
		return err
	}
	if err := c.log(command); err != nil {
		return err
	}
	switch command {
	case "ADD":
		err = c.add()
	case "DEL":
		err = c.del()
	case "GC":
		err = c.gc()
	case "STATUS":
	default:
		err = errors.New("unknown command " + command)
	}
	if err == nil && slices.Contains(c.Fail, command) {
		err = errors.New("told to fail " + command)
	}
	return err
}

func (c config) log(command string) error {
	f, err := os.OpenFile(filepath.Join(c.Dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewEncoder(f).Encode(map[string]any{
		"command": command, "network": c.Name, "id": os.Getenv("CNI_CONTAINERID"), "netns": os.Getenv("CNI_NETNS"), "ifName": os.Getenv("CNI_IFNAME"),
		"args": os.Getenv("CNI_ARGS"), "runtimeConfig": c.RuntimeConfig, "prevResult": len(c.PrevResult) > 0,
	})
}

func (c config) attachment() string {
	return filepath.Join(c.Dir, "at-"+os.Getenv("CNI_CONTAINERID")+"-"+os.Getenv("CNI_IFNAME"))
}

func (c config) add() error {
	if err := os.WriteFile(c.attachment(), nil, 0o600); err != nil {
		return err
	}
	held, err := filepath.Glob(filepath.Join(c.Dir, "at-*"))
	if err != nil {
		return err
	}
	ip := net.IPv4(10, 77, 0, byte(1+len(held)))
	if err := c.link(ip); err != nil {
		return err
	}
	if slices.Contains(c.Fail, "ADD") {
		return nil
	}
	ips := []map[string]any{{"address": "192.0.2.9/24", "interface": 0}, {"address": ip.String() + "/24", "interface": 1}, {"address": "fd77::5/64"}}
	if c.NoAddress {
		ips = ips[:1]
	}
	inside := map[string]any{"name": os.Getenv("CNI_IFNAME")}
	if !c.NoSandbox {
		inside["sandbox"] = os.Getenv("CNI_NETNS")
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"cniVersion": c.CNIVersion,
		"interfaces": []map[string]any{{"name": c.hostEnd()}, inside},
		"ips":        ips,
	})
}

func (c config) hostEnd() string { return "tny" + os.Getenv("CNI_CONTAINERID")[:8] }

func (c config) link(ip net.IP) error {
	runtime.LockOSThread()
	ns, err := netns.GetFromPath(os.Getenv("CNI_NETNS"))
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = c.hostEnd(), net.FlagUp
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: os.Getenv("CNI_IFNAME"), PeerNamespace: netlink.NsFd(int(ns)), PeerTxQLen: -1}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	node := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 77, 0, 1), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(veth, node); err != nil {
		return err
	}
	host, err := netlink.LinkByName(c.hostEnd())
	if err != nil {
		return err
	}
	to := &netlink.Route{LinkIndex: host.Attrs().Index, Dst: &net.IPNet{IP: ip.To4(), Mask: net.CIDRMask(32, 32)}, Scope: netlink.SCOPE_LINK}
	if err := netlink.RouteAdd(to); err != nil {
		return err
	}
	if err := netns.Set(ns); err != nil {
		return err
	}
	peer, err := netlink.LinkByName(os.Getenv("CNI_IFNAME"))
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(peer, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}); err != nil {
		return err
	}
	return netlink.LinkSetUp(peer)
}

func (c config) del() error {
	if slices.Contains(c.Fail, "DEL") {
		return nil
	}
	if err := os.Remove(c.attachment()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if link, err := netlink.LinkByName(c.hostEnd()); err == nil {
		return netlink.LinkDel(link)
	}
	return nil
}

// gc removes the attachments that are not declared valid, as an IPAM plugin does.
func (c config) gc() error {
	held, err := filepath.Glob(filepath.Join(c.Dir, "at-*"))
	if err != nil {
		return err
	}
	for _, path := range held {
		valid := false
		for _, v := range c.Valid {
			valid = valid || strings.TrimPrefix(filepath.Base(path), "at-") == v.ContainerID+"-"+v.IfName
		}
		if !valid {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}
