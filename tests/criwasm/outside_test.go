package criwasm

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/grpc/codes"

	"github.com/sunaba-project/sunaba/tests/node"
)

// get asks an HTTP server until it answers.
func (s *suite) get(url string) string {
	s.t.Helper()
	var body []byte
	var last error
	if !node.Within(node.Patience, func() bool {
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get(url)
		if err != nil {
			last = err
			return false
		}
		defer answer.Body.Close()
		body, last = io.ReadAll(answer.Body)
		return last == nil
	}) {
		s.t.Errorf("get %s: %v", url, last)
	}
	return string(body)
}

const greeting = "hello from wasm\n"

func portSpecs() map[string]func(*suite) {
	serve := func(s *suite, config *runtime.ContainerConfig, ports ...*runtime.PortMapping) *guest {
		g := s.run(func(c *runtime.PodSandboxConfig) { c.PortMappings = ports }).start(config)
		g.says("serving")
		return g
	}
	return map[string]func(*suite){
		"a port of the pod is open before the guest starts": func(s *suite) {
			g := serve(s, does("serve"), &runtime.PortMapping{ContainerPort: 8080})
			if got := s.get("http://" + g.pod.status().GetStatus().GetNetwork().GetIp() + ":8080/"); got != greeting {
				s.t.Errorf("%q", got)
			}
		},
		"a port of the node leads to the guest": func(s *suite) {
			g := serve(s, does("serve"), &runtime.PortMapping{ContainerPort: 8080, HostPort: 18080})
			_ = g
			if got := s.get("http://127.0.0.1:18080/"); got != greeting {
				s.t.Errorf("%q", got)
			}
		},
		"a port of one address of the node leads to the guest": func(s *suite) {
			serve(s, does("serve"), &runtime.PortMapping{ContainerPort: 8080, HostPort: 18081, HostIp: "127.0.0.1"})
			if got := s.get("http://127.0.0.1:18081/"); got != greeting {
				s.t.Errorf("%q", got)
			}
		},
		"the kubelet's annotation names the ports": func(s *suite) {
			config := does("serve")
			config.Annotations = map[string]string{"io.kubernetes.container.ports": `[{"name":"web","containerPort":9090,"protocol":"TCP"}]`}
			g := serve(s, config)
			if got := s.get("http://" + g.pod.status().GetStatus().GetNetwork().GetIp() + ":9090/"); got != greeting {
				s.t.Errorf("%q", got)
			}
		},
		"the listeners are announced": func(s *suite) {
			config := does("env")
			config.Annotations = map[string]string{"io.kubernetes.container.ports": `[{"name":"web","containerPort":9090,"protocol":"TCP"},{"name":"admin","containerPort":9091,"protocol":"TCP"}]`}
			got := s.run().prints(config)
			if !strings.Contains(got, "LISTEN_FDS=2\n") || !strings.Contains(got, "LISTEN_FDNAMES=web:admin\n") {
				s.t.Errorf("%q", got)
			}
		},
		"a guest without ports has no listener": func(s *suite) {
			if got := s.run().prints(does("env")); strings.Contains(got, "LISTEN_FDS") {
				s.t.Errorf("%q", got)
			}
		},
		"a guest that was created and not started does not keep its ports from another": func(s *suite) {
			p := s.run()
			config := func() *runtime.ContainerConfig {
				c := does("serve")
				c.Annotations = map[string]string{"io.kubernetes.container.ports": `[{"name":"web","containerPort":9090,"protocol":"TCP"}]`}
				return c
			}
			first := p.create(config())
			p.start(config()).says("serving")
			err := first.start()
			s.refused(err, codes.FailedPrecondition)
			if !strings.Contains(fmt.Sprint(err), "port 9090 (web)") {
				s.t.Errorf("start of the first: %v", err)
			}
			first.ends(128, "StartError")
			if got := s.get("http://" + p.status().GetStatus().GetNetwork().GetIp() + ":9090/"); got != greeting {
				s.t.Errorf("%q", got)
			}
		},
		"a port of the node is free again after its pod": func(s *suite) {
			for range 2 {
				g := serve(s, does("serve"), &runtime.PortMapping{ContainerPort: 8080, HostPort: 18082})
				if got := s.get("http://127.0.0.1:18082/"); got != greeting {
					s.t.Errorf("%q", got)
				}
				g.pod.remove()
			}
		},
	}
}

func imageSpecs() map[string]func(*suite) {
	find := func(s *suite, ref string) *runtime.Image {
		answer, err := s.ImageStatus(s.t.Context(), &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: ref}})
		s.check(err)
		return answer.GetImage()
	}
	return map[string]func(*suite){
		"an index gives the handler its variant": func(s *suite) {
			if got := s.run().prints(does()); got != "guest: hello\n" {
				s.t.Errorf("%q", got)
			}
		},
		"a reference has one answer and the pod's handler its variant": func(s *suite) {
			spec := &runtime.ImageSpec{Image: world.guest, RuntimeHandler: "wasm"}
			answer, err := s.PullImage(s.t.Context(), &runtime.PullImageRequest{Image: spec})
			s.check(err)
			status, err := s.ImageStatus(s.t.Context(), &runtime.ImageStatusRequest{Image: spec})
			s.check(err)
			for what, id := range map[string]string{
				"a pull for any handler": s.pull(world.guest), "the status": find(s, world.guest).GetId(), "the handler's status": status.GetImage().GetId(),
			} {
				if id != answer.GetImageRef() {
					s.t.Errorf("%s answers %s, the pull for the handler %s", what, id, answer.GetImageRef())
				}
			}
			g := s.run().create(does())
			if got, want := g.status().GetImageId(), status.GetImage().GetSpec().GetImage(); got != want {
				s.t.Errorf("the guest's image is %s, want %s", got, want)
			}
		},
		"an artifact is an image": func(s *suite) {
			if image := find(s, world.artifact); image.GetSize() == 0 || len(image.GetRepoTags()) != 1 || image.GetId() == "" {
				s.t.Errorf("%v", image)
			}
			if got := s.run().prints(from(world.artifact)); got != "guest: hello\n" {
				s.t.Errorf("%q", got)
			}
		},
		"an artifact's command is its arguments": func(s *suite) {
			config := from(world.artifact)
			config.Command, config.Args = []string{"args"}, []string{"x"}
			if got := s.run().prints(config); !strings.HasSuffix(got, "args\nx\n") {
				s.t.Errorf("%q", got)
			}
		},
		"an image is removed while a guest of it runs, and comes back": func(s *suite) {
			p := s.run()
			g := p.start(from(world.cmd, "tick"))
			g.says("tick 1")
			for range 2 {
				_, err := s.RemoveImage(s.t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: world.cmd}})
				s.check(err)
			}
			if image := find(s, world.cmd); image != nil {
				s.t.Errorf("%v", image)
			}
			g.says(fmt.Sprint("tick ", len(g.lines())+5))
			s.pull(world.cmd)
			if got := p.prints(from(world.cmd)); !strings.Contains(got, "from\nimage\n") {
				s.t.Errorf("%q", got)
			}
		},
		"a Linux handler refuses a guest and names the one to use": func(s *suite) {
			s.pull(world.cmd)
			config := s.podConfig()
			answer, err := s.RunPodSandbox(s.t.Context(), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: "runc"})
			s.check(err)
			p := &pod{suite: s, id: answer.GetPodSandboxId(), config: config}
			g, err := p.tryCreate(from(world.artifact))
			if err == nil {
				err = g.start()
			}
			s.refused(err, codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound)
			if err != nil && !strings.Contains(err.Error(), "wasm") {
				s.t.Errorf("%v", err)
			}
		},
	}
}
