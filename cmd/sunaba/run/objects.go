package run

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/classes"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// objects are what a run's files hold.
type objects struct {
	pod     *corev1.Pod
	key     manifest.Key // the pod's
	entries []desired.Entry
	notes   []string
}

// readInput reads the manifest, up to what the file of a folder of manifests may hold.
func readInput(o Options) ([]byte, error) {
	in := o.Reader
	if in == nil {
		f, err := os.Open(o.File) // also a pipe, if that is what the user names
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, manifest.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w", o.File, err)
	}
	return data, nil
}

// readObjects reads the manifest and the files of RuntimeClasses.
func readObjects(o Options) (*objects, error) {
	data, err := readInput(o)
	if err != nil {
		return nil, err
	}
	s, err := parseObjects(o.File, data)
	if err != nil {
		return nil, err
	}
	more, err := classes.Read(o.RuntimeClassFiles)
	if err != nil {
		return nil, err
	}
	have := desired.NewFixed(s.entries).Classes()
	for i := range more {
		if _, err := runtimeclass.Find(have, more[i].Name); err == nil {
			return nil, fmt.Errorf("%s: RuntimeClass %q is defined in the files of --runtimeclass too: %w", o.File, more[i].Name, errdefs.ErrInvalidArgument)
		}
		s.entries = append(s.entries, desired.Entry{Object: manifest.Object{
			Key: manifest.Key{Kind: manifest.KindRuntimeClass, Name: more[i].Name}, Value: &more[i],
		}})
	}
	return s, nil
}

// parseObjects wants exactly one Pod; other documents are what it uses. A Pod that names no
// restartPolicy is run once.
func parseObjects(file string, data []byte) (*objects, error) {
	all, notes, err := manifest.Parse(file, data, manifest.Options{})
	if err != nil {
		return nil, err
	}
	s := &objects{notes: notes}
	for _, o := range all {
		e := desired.Entry{Object: o, Source: cycle.Source{Kind: "run", File: file, Hash: o.Hash()}, Seen: time.Now()}
		if pod := o.Pod(); pod != nil {
			if s.pod != nil {
				return nil, fmt.Errorf("%s:%d: a second Pod; the first is %q: %w", file, o.Line, s.pod.Name, errdefs.ErrInvalidArgument)
			}
			s.pod, s.key = pod.DeepCopy(), o.Key
			s.pod.UID = identity.UID()
			if slices.Contains(o.Defaulted, "spec.restartPolicy") {
				s.pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			}
			e.Value = s.pod
		}
		s.entries = append(s.entries, e)
	}
	if s.pod == nil {
		return nil, fmt.Errorf("%s: no Pod in it: %w", file, errdefs.ErrInvalidArgument)
	}
	return s, nil
}

// setHandler has a handler take the place of that of the pod's class, whose overhead stays.
func (s *objects) setHandler(name string, have []string) error {
	if name == "" {
		return nil
	}
	have = named(have)
	if !slices.Contains(have, name) {
		return fmt.Errorf("runtime handler %q is not configured in the server (handlers: %s): %w",
			name, strings.Join(have, ", "), errdefs.ErrInvalidArgument)
	}
	class := s.pod.Spec.RuntimeClassName
	if class == nil || *class == "" {
		s.pod.Spec.RuntimeClassName = &name
		return nil
	}
	for i := range s.entries {
		if rc, ok := s.entries[i].Value.(*nodev1.RuntimeClass); ok && rc.Name == *class {
			rc = rc.DeepCopy()
			rc.Handler = name
			s.entries[i].Value = rc
			return nil
		}
	}
	s.pod.Spec.RuntimeClassName = &name // a class that is not defined is a handler's name
	return nil
}

// named are the handlers of the server without "", its default.
func named(handlers []string) []string {
	return slices.DeleteFunc(slices.Clone(handlers), func(name string) bool { return name == "" })
}
