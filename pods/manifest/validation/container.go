package validation

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// Bounds of restart rules (RS6).
const maxRules, maxCodes, maxCode = 20, 255, 255

// checkContainers checks every container of a Pod, and what they may not have together.
func checkContainers(p *fields.Problems, pod *corev1.Pod, volumes map[string]*corev1.Volume) {
	names := map[string]string{}
	hostPorts := map[string]string{}
	for _, c := range Containers(pod) {
		if p.Required(c.Path+".name", c.Name) {
			p.Value(c.Path+".name", c.Name, validation.IsDNS1123Label(c.Name)...)
			if other, twice := names[c.Name]; twice { // IN8
				p.Value(c.Path+".name", c.Name, "is the name of "+other+" too")
			}
			names[c.Name] = c.Path
		}
		checkImage(p, c.Path+".image", c.Image)
		fields.OneOf(p, c.Path+".imagePullPolicy", c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
		checkRestart(p, c)
		checkPorts(p, pod, c, hostPorts)
		checkEnv(p, pod, c)
		checkMounts(p, c, volumes)
		checkResources(p, c.Path+".resources", &c.Resources)
		checkResize(p, pod, c)
		checkSecurity(p, pod, c)
		checkLifecycle(p, pod, c)
		checkProbes(p, c)
		fields.OneOf(p, c.Path+".terminationMessagePolicy", c.TerminationMessagePolicy,
			corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
		if !path.IsAbs(c.TerminationMessagePath) {
			p.Value(c.Path+".terminationMessagePath", c.TerminationMessagePath, "must be an absolute path")
		}
	}
}

func checkImage(p *fields.Problems, path, image string) {
	if p.Required(path, image) && strings.TrimSpace(image) != image {
		p.Value(path, image, "must not have leading or trailing blanks")
	}
}

// checkRestart checks RS5 and RS6.
func checkRestart(p *fields.Problems, c Container) {
	if r := c.RestartPolicy; r != nil {
		fields.OneOf(p, c.Path+".restartPolicy", *r, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure,
			corev1.ContainerRestartPolicyNever)
	} else if len(c.RestartPolicyRules) > 0 {
		p.Add(c.Path+".restartPolicy", "is required with restartPolicyRules")
	}
	at := c.Path + ".restartPolicyRules"
	if len(c.RestartPolicyRules) > maxRules {
		p.Add(at, "must not have more than %d rules", maxRules)
		return
	}
	for i, r := range c.RestartPolicyRules {
		at := fmt.Sprintf("%s[%d]", at, i)
		if r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
			p.Value(at+".action", string(r.Action), "is not supported: use Restart, for this container")
		} else {
			fields.OneOf(p, at+".action", r.Action, corev1.ContainerRestartRuleActionRestart)
		}
		if r.ExitCodes == nil {
			p.Add(at+".exitCodes", "is required")
			continue
		}
		fields.OneOf(p, at+".exitCodes.operator", r.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(r.ExitCodes.Values); n == 0 || n > maxCodes {
			p.Add(at+".exitCodes.values", "has %d values: must be between 1 and %d, inclusive", n, maxCodes)
			continue
		}
		for j, code := range r.ExitCodes.Values {
			fields.Between(p, fmt.Sprintf("%s.exitCodes.values[%d]", at, j), code, 0, maxCode)
		}
	}
}

// checkPorts checks a container's ports. One port of the host can be that of one container: those
// of app containers and sidecars are mapped together.
func checkPorts(p *fields.Problems, pod *corev1.Pod, c Container, hostPorts map[string]string) {
	names := map[string]bool{}
	for i, port := range c.Ports {
		at := fmt.Sprintf("%s.ports[%d]", c.Path, i)
		if port.Name != "" {
			p.Value(at+".name", port.Name, validation.IsValidPortName(port.Name)...)
			if names[port.Name] {
				p.Value(at+".name", port.Name, "is the name of another port of this container too")
			}
			names[port.Name] = true
		}
		fields.Between(p, at+".containerPort", port.ContainerPort, 1, 65535)
		fields.OneOf(p, at+".protocol", port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if port.HostIP != "" {
			checkIP(p, at+".hostIP", port.HostIP)
		}
		if port.HostPort == 0 {
			continue
		}
		fields.Between(p, at+".hostPort", port.HostPort, 1, 65535)
		if pod.Spec.HostNetwork && port.HostPort != port.ContainerPort {
			p.Value(at+".hostPort", port.HostPort, "must be equal to containerPort with hostNetwork")
		}
		if c.Init && !c.Sidecar() {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
		if other, taken := hostPorts[key]; taken {
			p.Value(at+".hostPort", port.HostPort, "is that of "+other+" too")
		}
		hostPorts[key] = at
	}
}

// checkEnv checks variables and where they are from. The values of EnvFrom are known to the agent.
func checkEnv(p *fields.Problems, pod *corev1.Pod, c Container) {
	for i, e := range c.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", c.Path, i)
		if e.Prefix != "" {
			p.Value(at+".prefix", e.Prefix, validation.IsRelaxedEnvVarName(e.Prefix)...)
		}
		switch {
		case (e.ConfigMapRef == nil) == (e.SecretRef == nil):
			p.Add(at, "must have exactly one of configMapRef, secretRef")
		case e.ConfigMapRef != nil:
			checkReference(p, at+".configMapRef.name", e.ConfigMapRef.Name)
		default:
			checkReference(p, at+".secretRef.name", e.SecretRef.Name)
		}
	}
	for i, e := range c.Env {
		at := fmt.Sprintf("%s.env[%d]", c.Path, i)
		if p.Required(at+".name", e.Name) {
			p.Value(at+".name", e.Name, validation.IsRelaxedEnvVarName(e.Name)...)
		}
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			p.Add(at+".valueFrom", "must not be given when value is not empty")
		}
		checkSource(p, pod, at+".valueFrom", e.ValueFrom)
	}
}

// checkSource checks where a variable's value is from.
func checkSource(p *fields.Problems, pod *corev1.Pod, path string, s *corev1.EnvVarSource) {
	if count(s.FieldRef != nil, s.ResourceFieldRef != nil, s.ConfigMapKeyRef != nil, s.SecretKeyRef != nil) != 1 && s.FileKeyRef == nil {
		p.Add(path, "must have exactly one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef")
	}
	if s.FieldRef != nil {
		checkFieldRef(p, path+".fieldRef", s.FieldRef, envFields)
	}
	if s.ResourceFieldRef != nil {
		checkResourceRef(p, pod, path+".resourceFieldRef", s.ResourceFieldRef, false)
	}
	if r := s.ConfigMapKeyRef; r != nil {
		checkReference(p, path+".configMapKeyRef.name", r.Name)
		p.Value(path+".configMapKeyRef.key", r.Key, validation.IsConfigMapKey(r.Key)...)
	}
	if r := s.SecretKeyRef; r != nil {
		checkReference(p, path+".secretKeyRef.name", r.Name)
		p.Value(path+".secretKeyRef.key", r.Key, validation.IsConfigMapKey(r.Key)...)
	}
}

// count is how many are true.
func count(given ...bool) int {
	n := 0
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}
