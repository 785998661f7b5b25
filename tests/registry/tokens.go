package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"
)

// TokenServer gives tokens for a Distribution, by the protocol that
// distribution's documents describe: GET with basic authorization, and POST as
// OAuth2 has it.
type TokenServer struct {
	// Users are passwords by user; IdentityTokens are what stands for one.
	Users          map[string]string
	IdentityTokens map[string]string
	// Lifetime is how long a token is good for.
	Lifetime time.Duration

	cert []byte
	key  *ecdsa.PrivateKey

	mu   sync.Mutex
	seen []string
}

// NewTokenServer returns a TokenServer with a key of its own.
func NewTokenServer() (*TokenServer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: TokenIssuer},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &TokenServer{Lifetime: time.Minute, cert: cert, key: key}, nil
}

// CertPEM is the certificate that a Distribution is given.
func (s *TokenServer) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert})
}

// Grants are "HOW USER SCOPE" of the tokens that were given, in their order.
func (s *TokenServer) Grants() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *TokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, how, ok := s.authenticate(r)
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	scope := r.FormValue("scope")
	token, err := s.token(user, scope)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	s.mu.Lock()
	s.seen = append(s.seen, strings.TrimSpace(how+" "+user+" "+scope))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"token": token, "access_token": token, "expires_in": int(s.Lifetime.Seconds()), "issued_at": time.Now().UTC().Format(time.RFC3339),
	})
}

// authenticate says who asks; nobody in particular is "".
func (s *TokenServer) authenticate(r *http.Request) (user, how string, ok bool) {
	if r.Method == http.MethodPost {
		switch r.FormValue("grant_type") {
		case "password":
			user = r.FormValue("username")
			return user, "password", user != "" && s.Users[user] == r.FormValue("password")
		case "refresh_token":
			user, ok = s.IdentityTokens[r.FormValue("refresh_token")]
			return user, "refresh_token", ok
		}
		return "", "", false
	}
	user, password, given := r.BasicAuth()
	if !given {
		return "", "anonymous", true
	}
	return user, "basic", user != "" && s.Users[user] == password
}

// token makes a signed token. Nobody in particular may pull what starts with
// "public/"; users may do everything.
func (s *TokenServer) token(user, scope string) (string, error) {
	var access []map[string]any
	for _, one := range strings.Fields(scope) {
		parts := strings.Split(one, ":")
		if len(parts) != 3 || user == "" && (!strings.HasPrefix(parts[1], "public/") || parts[2] != "pull") {
			continue
		}
		access = append(access, map[string]any{"type": parts[0], "name": parts[1], "actions": strings.Split(parts[2], ",")})
	}
	now := time.Now()
	header := map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(s.cert)}}
	claims := map[string]any{
		"iss": TokenIssuer, "sub": user, "aud": TokenService, "jti": rand.Text(),
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(s.Lifetime).Unix(), "access": access,
	}
	var parts []string
	for _, v := range []any{header, claims} {
		data, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(data))
	}
	signed := strings.Join(parts, ".")
	sum := sha256.Sum256([]byte(signed))
	r, sig, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		return "", err
	}
	raw := make([]byte, 64)
	r.FillBytes(raw[:32])
	sig.FillBytes(raw[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(raw), nil
}
