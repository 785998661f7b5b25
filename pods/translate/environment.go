package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is the longest list of names in a message, in bytes.
const maxMessage = 512

// Environment is the environment that the pod gives a container: envFrom in its order, with each
// object's keys sorted, then env in its order; the later value of a name wins and stands where the
// name came first. There are no Services, so there are no variables of them.
//
// # Errors
//
// A *ConfigError: with ErrNotFound for a missing object or key that is not optional, and as
// Container's otherwise.
func Environment(in Input, c *corev1.Container) ([]*runtime.KeyValue, error) {
	envs, err := environment(in, c)
	if err != nil {
		return nil, configError(err)
	}
	return envs, nil
}

// EnvironmentNotes says which keys of envFrom are left out of Environment because they cannot be
// names of variables.
func EnvironmentNotes(in Input, c *corev1.Container) []Note {
	var notes []Note
	for i := range c.EnvFrom {
		from, err := source(in, &c.EnvFrom[i])
		if err != nil {
			return notes // Environment says it
		}
		if len(from.refused) == 0 {
			continue
		}
		names := strings.Join(from.refused, ", ")
		if len(names) > maxMessage {
			names = names[:maxMessage] + "…"
		}
		notes = append(notes, Note{ReasonInvalidEnvNames, fmt.Sprintf(
			"Keys [%s] from the EnvFrom %s %s/%s were skipped since they are considered invalid environment variable names.",
			names, from.kind, in.Pod.Namespace, from.name)})
	}
	return notes
}

// variables are those of a container while they are collected.
type variables struct {
	names  []string
	values map[string]string
	size   int
}

func (v *variables) set(field, name, value string) error {
	if len(name)+len(value)+1 > maxString {
		return invalid(field, "variable %.80q has more than %d bytes", name, maxString)
	}
	old, known := v.values[name]
	if !known {
		v.names = append(v.names, name)
		v.size += len(name) + 2
	}
	if v.size += len(value) - len(old); v.size > maxStrings {
		return invalid(field, "the variables have more than %d bytes together", maxStrings)
	}
	v.values[name] = value
	return nil
}

func environment(in Input, c *corev1.Container) ([]*runtime.KeyValue, error) {
	vars := &variables{values: map[string]string{}}
	for i := range c.EnvFrom {
		from, err := source(in, &c.EnvFrom[i])
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(from.values)) {
			if err := vars.set(fmt.Sprintf("envFrom[%d]", i), name, from.values[name]); err != nil {
				return nil, err
			}
		}
	}
	for i := range c.Env {
		field := fmt.Sprintf("env[%d]", i)
		value, ok, err := variable(in, c, &c.Env[i], field, vars.values)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := vars.set(field, c.Env[i].Name, value); err != nil {
			return nil, err
		}
	}
	list := make([]*runtime.KeyValue, 0, len(vars.names))
	for _, name := range vars.names {
		list = append(list, &runtime.KeyValue{Key: name, Value: []byte(vars.values[name])})
	}
	return list, nil
}

// fromObject is what one entry of envFrom gives.
type fromObject struct {
	kind, name string
	values     map[string]string
	refused    []string // sorted
}

func source(in Input, e *corev1.EnvFromSource) (fromObject, error) {
	var from fromObject
	data := map[string]string{}
	switch {
	case e.ConfigMapRef != nil:
		from.kind, from.name = "configMap", e.ConfigMapRef.Name
		object, err := configMap(in, from.name, is(e.ConfigMapRef.Optional))
		if err != nil {
			return from, err
		}
		if object != nil {
			data = object.Data
		}
	case e.SecretRef != nil:
		from.kind, from.name = "secret", e.SecretRef.Name
		object, err := secret(in, from.name, is(e.SecretRef.Optional))
		if err != nil {
			return from, err
		}
		if object != nil {
			for k, v := range object.Data {
				data[k] = string(v)
			}
		}
	}
	from.values = make(map[string]string, len(data))
	for key, value := range data {
		name := e.Prefix + key
		if len(validation.IsRelaxedEnvVarName(name)) > 0 {
			from.refused = append(from.refused, key)
		} else {
			from.values[name] = value
		}
	}
	slices.Sort(from.refused)
	return from, nil
}

// variable is the value of one entry of env; ok is false for an optional one that is not there.
func variable(in Input, c *corev1.Container, e *corev1.EnvVar, field string, before map[string]string) (value string, ok bool, err error) {
	if e.Value != "" || e.ValueFrom == nil {
		value, _, err = Expand(e.Value, before)
		if err != nil {
			return "", false, fmt.Errorf("%s.%w", field, err)
		}
		return value, true, nil
	}
	switch from := e.ValueFrom; {
	case from.FieldRef != nil:
		value, err = FieldRef(in, from.FieldRef)
	case from.ResourceFieldRef != nil:
		value, err = ResourceFieldRef(in, c, from.ResourceFieldRef)
	case from.ConfigMapKeyRef != nil:
		return configMapKey(in, from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return secretKey(in, from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return "", false, classed(errdefs.ErrNotImplemented, "%s.valueFrom.fileKeyRef: is not done yet; mount the volume and read the file instead", field)
	}
	return value, err == nil, err
}

func configMapKey(in Input, ref *corev1.ConfigMapKeySelector) (string, bool, error) {
	object, err := configMap(in, ref.Name, is(ref.Optional))
	if object == nil || err != nil {
		return "", false, err
	}
	value, ok := object.Data[ref.Key]
	if !ok && !is(ref.Optional) {
		return "", false, classed(errdefs.ErrNotFound, "couldn't find key %s in ConfigMap %s/%s", ref.Key, in.Pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func secretKey(in Input, ref *corev1.SecretKeySelector) (string, bool, error) {
	object, err := secret(in, ref.Name, is(ref.Optional))
	if object == nil || err != nil {
		return "", false, err
	}
	value, ok := object.Data[ref.Key]
	if !ok && !is(ref.Optional) {
		return "", false, classed(errdefs.ErrNotFound, "couldn't find key %s in Secret %s/%s", ref.Key, in.Pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

// configMap is nil for an optional one that is not there.
func configMap(in Input, name string, optional bool) (*corev1.ConfigMap, error) {
	if in.Objects != nil {
		if object, ok := in.Objects.ConfigMap(in.Pod.Namespace, name); ok {
			return object, nil
		}
	}
	if optional {
		return nil, nil
	}
	return nil, classed(errdefs.ErrNotFound, "configmap %q not found", name)
}

// secret is nil for an optional one that is not there.
func secret(in Input, name string, optional bool) (*corev1.Secret, error) {
	if in.Objects != nil {
		if object, ok := in.Objects.Secret(in.Pod.Namespace, name); ok {
			return object, nil
		}
	}
	if optional {
		return nil, nil
	}
	return nil, classed(errdefs.ErrNotFound, "secret %q not found", name)
}
