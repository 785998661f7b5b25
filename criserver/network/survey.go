package network

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/firewall"
	"github.com/sunaba-project/sunaba/criserver/network/lease"
	"github.com/sunaba-project/sunaba/host/boot"
)

// Held is what the node's network holds for pods at this moment.
type Held struct {
	Leases      []lease.Lease // of the embedded network
	Links       []string      // host ends in its bridge
	Rules       []string      // ids of pods that its tables name
	Tables      bool          // the tables are there
	Attachments []string      // ids of pods that CNI plugins were called for
}

// Survey looks at what the network holds. It changes nothing, takes no lock, and may be called
// beside a running server.
func Survey(o Options) (Held, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	bridge := cmp.Or(o.Embedded.Bridge, defaultBridge)
	var h Held
	id, err := boot.ID()
	if err != nil {
		return h, err
	}
	if h.Leases, err = lease.Read(filepath.Join(o.StateDir, leasesFile), id); err != nil {
		return h, err
	}
	if h.Links, err = hostEnds(bridge); err != nil {
		return h, err
	}
	comments, tables, err := firewall.Comments(bridge)
	if err != nil {
		return h, err
	}
	h.Tables = tables
	for _, c := range comments {
		id, _, _ := strings.Cut(c, " ") // see portMappings
		h.Rules = append(h.Rules, id)
	}
	h.Attachments, err = newCNI(o).records()
	return h, err
}

// hostEnds are the names of pods' links in a bridge, none without the bridge.
func hostEnds(bridge string) ([]string, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	defer h.Close()
	b, err := findBridge(h, bridge)
	if err != nil || b == nil {
		return nil, err
	}
	links, err := dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []string
	for _, l := range links {
		if a := l.Attrs(); a.MasterIndex == b.Attrs().Index && isHostEnd(a.Name) {
			out = append(out, a.Name)
		}
	}
	return out, nil
}

// HostEnd is the name of a pod's link on the node.
func HostEnd(podID string) string { return hostEnd(podID) }

// IsEmbedded says that the embedded network set a pod up.
func (r Result) IsEmbedded() bool {
	var by struct {
		By string `json:"by"`
	}
	return json.Unmarshal(r.Raw, &by) == nil && by.By == byEmbedded
}
