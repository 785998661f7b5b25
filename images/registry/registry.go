// Package registry fetches manifests and blobs from image registries.
package registry

import "time"

// Options configures a Client.
type Options struct {
	// Insecure lists registries spoken to over plain HTTP, as "host" (any port)
	// or "host:port". Loopback hosts always are.
	Insecure []string
	// StallTimeout ends a transfer that brings no byte for so long; 0 means one
	// minute.
	StallTimeout time.Duration
}

// Credentials are the six fields of a CRI AuthConfig.
type Credentials struct {
	Username, Password string
	// Auth is base64 of "username:password".
	Auth string
	// ServerAddress, when set, must name the registry, or nothing is used.
	ServerAddress string
	// IdentityToken is exchanged for an access token at the token server.
	IdentityToken string
	// RegistryToken is a bearer token sent to the registry as it is.
	RegistryToken string
}
