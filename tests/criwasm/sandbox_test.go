package criwasm

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const nobody = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func nodeSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"the version names the runtime": func(s *suite) {
			v, err := s.Version(s.t.Context(), &runtime.VersionRequest{})
			s.check(err)
			if v.GetRuntimeName() != "sunaba" || v.GetRuntimeVersion() == "" || v.GetRuntimeApiVersion() != "v1" {
				s.t.Errorf("%v", v)
			}
		},
		"the status lists the handler with its features": func(s *suite) {
			status, err := s.Status(s.t.Context(), &runtime.StatusRequest{})
			s.check(err)
			for _, h := range status.GetRuntimeHandlers() {
				if h.GetName() == "wasm" && h.GetFeatures() != nil {
					return
				}
			}
			s.t.Errorf("%v", status.GetRuntimeHandlers())
		},
		"an unknown handler is refused by name": func(s *suite) {
			_, err := s.RunPodSandbox(s.t.Context(), &runtime.RunPodSandboxRequest{Config: s.podConfig(), RuntimeHandler: "wasmtime"})
			s.refused(err, codes.InvalidArgument)
			if err != nil && !strings.Contains(err.Error(), "wasm") {
				s.t.Errorf("%v names no handler that there is", err)
			}
		},
	}
}

func sandboxSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"a sandbox runs and is ready": func(s *suite) {
			st := s.run().status().GetStatus()
			if st.GetState() != runtime.PodSandboxState_SANDBOX_READY || st.GetRuntimeHandler() != "wasm" || st.GetCreatedAt() == 0 {
				s.t.Errorf("%v", st)
			}
		},
		"a sandbox keeps its labels and annotations": func(s *suite) {
			p := s.run(func(c *runtime.PodSandboxConfig) {
				c.Labels, c.Annotations = map[string]string{"a": "b"}, map[string]string{"c/d": "e f"}
			})
			st := p.status().GetStatus()
			if len(st.GetLabels()) != 1 || st.GetLabels()["a"] != "b" || len(st.GetAnnotations()) != 1 || st.GetAnnotations()["c/d"] != "e f" {
				s.t.Errorf("%v %v", st.GetLabels(), st.GetAnnotations())
			}
		},
		"a sandbox has an address": func(s *suite) {
			ip := s.run().status().GetStatus().GetNetwork().GetIp()
			if _, err := netip.ParseAddr(ip); err != nil {
				s.t.Error(err)
			}
		},
		"a sandbox is listed by id, state and label": func(s *suite) {
			p := s.run(func(c *runtime.PodSandboxConfig) { c.Labels = map[string]string{"find": "me"} })
			s.run()
			for name, f := range map[string]*runtime.PodSandboxFilter{
				"id": {Id: p.id}, "beginning of the id": {Id: p.id[:13]}, "label": {LabelSelector: map[string]string{"find": "me"}},
				"all": {Id: p.id, LabelSelector: map[string]string{"find": "me"}, State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY}},
			} {
				list, err := s.ListPodSandbox(s.t.Context(), &runtime.ListPodSandboxRequest{Filter: f})
				s.check(err)
				if len(list.GetItems()) != 1 || list.GetItems()[0].GetId() != p.id || list.GetItems()[0].GetRuntimeHandler() != "wasm" {
					s.t.Errorf("by %s: %v", name, list)
				}
			}
		},
		"a stopped sandbox is not ready and may be stopped again": func(s *suite) {
			p := s.run()
			g := p.start(does("idle"))
			p.stop()
			p.stop()
			if st := p.status().GetStatus(); st.GetState() != runtime.PodSandboxState_SANDBOX_NOTREADY {
				s.t.Errorf("%v", st)
			}
			g.ends(137, "Error")
		},
		"a sandbox is removed with its guests, and again": func(s *suite) {
			p := s.run()
			g := p.start(does("spin"))
			p.remove()
			p.remove()
			_, err := s.PodSandboxStatus(s.t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id})
			s.refused(err, codes.NotFound)
			_, err = s.ContainerStatus(s.t.Context(), &runtime.ContainerStatusRequest{ContainerId: g.id})
			s.refused(err, codes.NotFound)
		},
		"what is not there is stopped and removed without an error": func(s *suite) {
			_, err := s.StopPodSandbox(s.t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: nobody})
			s.check(err)
			_, err = s.RemovePodSandbox(s.t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: nobody})
			s.check(err)
			_, err = s.StopContainer(s.t.Context(), &runtime.StopContainerRequest{ContainerId: nobody})
			s.check(err)
			_, err = s.RemoveContainer(s.t.Context(), &runtime.RemoveContainerRequest{ContainerId: nobody})
			s.check(err)
		},
		"two sandboxes of one name are refused": func(s *suite) {
			p := s.run()
			again := s.podConfig()
			again.Metadata = p.config.GetMetadata()
			_, err := s.RunPodSandbox(s.t.Context(), &runtime.RunPodSandboxRequest{Config: again, RuntimeHandler: "wasm"})
			s.refused(err, codes.AlreadyExists)
		},
		"the hostname stands in the guest's files and environment": func(s *suite) {
			p := s.run()
			if got := p.prints(does("cat", "/etc/hostname")); got != "guesthost\n" {
				s.t.Errorf("%q", got)
			}
			if got := p.prints(does("env", "HOSTNAME")); got != "guesthost\n" {
				s.t.Errorf("%q", got)
			}
			if got := p.prints(does("cat", "/etc/hosts")); !strings.Contains(got, "guesthost") {
				s.t.Errorf("%q", got)
			}
		},
		"the resolver's configuration is the pod's": func(s *suite) {
			p := s.run(func(c *runtime.PodSandboxConfig) {
				c.DnsConfig = &runtime.DNSConfig{Servers: []string{"10.10.10.10"}, Searches: []string{"example.org"}, Options: []string{"ndots:3"}}
			})
			if got := p.prints(does("cat", "/etc/resolv.conf")); got != "search example.org\nnameserver 10.10.10.10\noptions ndots:3\n" {
				s.t.Errorf("%q", got)
			}
		},
		"a sandbox may be on the node's network": func(s *suite) {
			p := s.run(func(c *runtime.PodSandboxConfig) {
				c.Hostname = ""
				c.Linux.SecurityContext.NamespaceOptions.Network = runtime.NamespaceMode_NODE
			})
			if got := p.prints(does()); got != "guest: hello\n" {
				s.t.Errorf("%q", got)
			}
			if ip := p.status().GetStatus().GetNetwork().GetIp(); ip != "" {
				s.t.Errorf("address %q", ip)
			}
		},
		"a sandbox may share a process namespace": func(s *suite) {
			p := s.run(func(c *runtime.PodSandboxConfig) {
				c.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
			})
			if got := p.prints(does()); got != "guest: hello\n" {
				s.t.Errorf("%q", got)
			}
		},
		"the verbose status tells the handler's kind and the overhead": func(s *suite) {
			p := s.run(func(c *runtime.PodSandboxConfig) {
				c.Linux.Overhead = &runtime.LinuxContainerResources{MemoryLimitInBytes: 16 << 20}
			})
			p.start(does("idle")).says("idle")
			var info struct {
				HandlerType string
				Overhead    struct {
					Declared struct{ MemoryBytes int64 }
					Measured struct {
						MemoryBytes int64
						Parts       []struct{ Name string }
					}
				}
			}
			s.check(json.Unmarshal([]byte(p.status().GetInfo()["info"]), &info))
			if info.HandlerType != "wasm" || info.Overhead.Declared.MemoryBytes != 16<<20 || info.Overhead.Measured.MemoryBytes == 0 {
				s.t.Errorf("%+v", info)
			}
			want := map[string][]string{"pod": {"engine", "shim"}, "node": {"engine", "shim", "supervisor"}}[s.scope]
			var parts []string
			for _, part := range info.Overhead.Measured.Parts {
				if part.Name != "prewarmed" { // for a next container, for some seconds
					parts = append(parts, part.Name)
				}
			}
			if slices.Sort(parts); !slices.Equal(parts, want) {
				s.t.Errorf("parts are %q, want %q", parts, want)
			}
		},
		"the status holds those of the guests": func(s *suite) {
			p := s.run()
			g := p.start(does("exit", "4"))
			g.ends(4, "Error")
			st := p.status()
			if len(st.GetContainersStatuses()) != 1 || st.GetContainersStatuses()[0].GetExitCode() != 4 || st.GetTimestamp() == 0 {
				s.t.Errorf("%v", st)
			}
		},
		"guests of two sandboxes do not share an address": func(s *suite) {
			a, b := s.run(), s.run()
			if a.status().GetStatus().GetNetwork().GetIp() == b.status().GetStatus().GetNetwork().GetIp() {
				s.t.Error("one address")
			}
		},
	}
}

func eventSpecs() map[string]func(*suite) {
	return map[string]func(*suite){
		"a guest's events come in order": func(s *suite) {
			stream, err := s.GetContainerEvents(s.t.Context(), &runtime.GetEventsRequest{})
			s.check(err)
			_, err = stream.Header() // from now on it listens
			s.check(err)
			p := s.run()
			g := p.start(does("exit", "0"))
			g.ends(0, "Completed")
			_, err = s.RemoveContainer(s.t.Context(), &runtime.RemoveContainerRequest{ContainerId: g.id})
			s.check(err)
			var got []string
			for len(got) < 4 {
				event, err := stream.Recv()
				s.check(err)
				if event.GetContainerId() == g.id {
					got = append(got, strings.TrimSuffix(strings.TrimPrefix(event.GetContainerEventType().String(), "CONTAINER_"), "_EVENT"))
				}
			}
			if want := "CREATED STARTED STOPPED DELETED"; strings.Join(got, " ") != want {
				s.t.Errorf("%q, want %q", got, want)
			}
		},
	}
}
