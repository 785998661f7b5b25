package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

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
	log := &eventLog{path: k.Log}
	s.events = func(context.Context) ([]event, error) { return log.read() }
	return s, nil
}

// eventLog reads the events of a kubelet without an API server, which are in its log alone.
type eventLog struct {
	path string
	mu   sync.Mutex
	end  int64 // of the last whole line that was read
	list []event
}

// read returns all events until now.
func (l *eventLog) read() ([]event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(l.end, io.SeekStart); err != nil {
		return nil, err
	}
	for lines := bufio.NewReader(file); ; {
		text, err := lines.ReadString('\n')
		if err != nil { // a line that is not whole is read the next time
			return slices.Clone(l.list), nil
		}
		l.end += int64(len(text))
		if !strings.Contains(text, `"Event occurred"`) {
			continue
		}
		var line struct {
			Object                           struct{ Name, Namespace string }
			FieldPath, Type, Reason, Message string
			Kind                             string
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			return nil, fmt.Errorf("read the kubelet's log: %w", err)
		}
		l.list = append(l.list, event{line.Object.Namespace, line.Object.Name, line.FieldPath, line.Type, line.Reason, line.Message})
	}
}
