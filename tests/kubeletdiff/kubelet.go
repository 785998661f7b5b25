package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/tests/kubelet"
)

// startKubelet starts a server and a standalone kubelet over it.
func startKubelet(ctx context.Context, g *ground) (*side, error) {
	s, err := newSide(ctx, g, "kubelet", "")
	if err != nil {
		return nil, err
	}
	s.suffix = "-" + nodeName
	k, err := kubelet.Start(ctx, kubelet.Options{
		Program: g.kubelet, Dir: s.dir, Socket: s.node.Socket, Manifests: s.manifests,
		NodeName: nodeName, NodeIP: nodeIP, ClusterDNS: clusterDNS, Domain: domain, CrashLoopMax: crashLoopMax,
	})
	if err != nil {
		return nil, errors.Join(err, s.close(ctx, g.report))
	}
	s.end = func(report string) error {
		stopped := k.Stop()
		data, err := os.ReadFile(k.Log)
		return errors.Join(stopped, err, os.WriteFile(filepath.Join(report, "kubelet.log"), data, 0o644))
	}
	s.pods = func(ctx context.Context) ([]corev1.Pod, error) { return k.Pods(ctx) }
	s.events = func(context.Context) ([]event, error) { return readEvents(k.Log) }
	return s, nil
}

// readEvents reads the events of a kubelet without an API server, which are in its log alone.
func readEvents(path string) ([]event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	var list []event
	for lines.Scan() {
		if !strings.Contains(lines.Text(), `"Event occurred"`) {
			continue
		}
		var line struct {
			Object                           struct{ Name, Namespace string }
			FieldPath, Type, Reason, Message string
			Kind                             string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("read the kubelet's log: %w", err)
		}
		list = append(list, event{line.Object.Namespace, line.Object.Name, line.FieldPath, line.Type, line.Reason, line.Message})
	}
	return list, lines.Err()
}
