package validation

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// maxData is the size of a ConfigMap's or Secret's values in bytes.
const maxData = 1 << 20

// localStorage is the storage class of a claim that names one (VO17).
const localStorage = "local"

// checkKeys checks the keys of a ConfigMap or Secret and returns the size of their values.
func checkKeys[V ~string | ~[]byte](p *fields.Problems, path string, data map[string]V) int {
	size := 0
	for _, key := range sorted(data) {
		p.Value(path, key, validation.IsConfigMapKey(key)...)
		size += len(data[key])
	}
	return size
}

func checkSize(p *fields.Problems, size int) {
	if size > maxData {
		p.Add("data", "has %d bytes; at most %d can be had", size, maxData)
	}
}

// ConfigMap checks keys and sizes.
func ConfigMap(p *fields.Problems, m *corev1.ConfigMap) {
	checkSize(p, checkKeys(p, "data", m.Data)+checkKeys(p, "binaryData", m.BinaryData))
	for _, key := range sorted(m.BinaryData) {
		if _, twice := m.Data[key]; twice {
			p.Value("binaryData", key, "is a key of data too")
		}
	}
}

// Secret checks keys, and those that a type must have.
func Secret(p *fields.Problems, s *corev1.Secret) {
	checkSize(p, checkKeys(p, "data", s.Data))
	need := func(key string) bool {
		_, ok := s.Data[key]
		if !ok {
			p.Add(fmt.Sprintf("data[%s]", key), "is required by type %s", s.Type)
		}
		return ok
	}
	registries := func(key string) {
		if need(key) && !json.Valid(s.Data[key]) {
			p.Add(fmt.Sprintf("data[%s]", key), "must be JSON")
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken:
		p.Value("type", string(s.Type), "is not supported: there is no API server, so there is no token")
	case corev1.SecretTypeDockercfg:
		registries(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		registries(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			p.Add("data", "type %s requires %s or %s", s.Type, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		need(corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey)
		need(corev1.TLSPrivateKeyKey)
	}
}

// Claim checks VO17.
func Claim(p *fields.Problems, c *corev1.PersistentVolumeClaim) {
	if len(c.Spec.AccessModes) == 0 {
		p.Add("spec.accessModes", "is required")
	}
	for i, m := range c.Spec.AccessModes {
		fields.OneOf(p, fmt.Sprintf("spec.accessModes[%d]", i), m, corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany,
			corev1.ReadWriteOncePod)
		if m == corev1.ReadWriteOncePod && len(c.Spec.AccessModes) > 1 {
			p.Add("spec.accessModes", "must not have others beside %s", m)
		}
	}
	if name := value(c.Spec.StorageClassName); name != "" && name != localStorage {
		p.Value("spec.storageClassName", name, "is not supported: claims are folders of the node; write local or remove it")
	}
	if m := *c.Spec.VolumeMode; m != corev1.PersistentVolumeFilesystem {
		if m == corev1.PersistentVolumeBlock {
			p.Value("spec.volumeMode", string(m), "is not supported: use a hostPath volume of type BlockDevice")
		} else {
			fields.OneOf(p, "spec.volumeMode", m, corev1.PersistentVolumeFilesystem)
		}
	}
	for _, name := range sorted(c.Spec.Resources.Requests) {
		if name != corev1.ResourceStorage {
			p.Value("spec.resources.requests", string(name), "only storage can be requested")
		}
	}
	storage, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case !ok:
		p.Add("spec.resources.requests[storage]", "is required")
	case storage.Sign() <= 0:
		p.Value("spec.resources.requests[storage]", storage.String(), "must be greater than 0")
	}
}
