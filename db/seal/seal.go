// Package seal encrypts the secrets that Odometer stores, such as the keys of billing providers.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/odometer-metering/odometer/metering"
)

// Purpose is the use of a sealed secret. A secret can be opened only for the tenant and the purpose for
// which it was sealed.
type Purpose string

// The purposes of sealed secrets.
const (
	ProviderSecret        Purpose = "billing_connections.secret"
	ProviderWebhookSecret Purpose = "billing_connections.webhook_secret"
	SigningSecret         Purpose = "credentials.secret"
	OIDCSecret            Purpose = "oidc_issuers.client_secret"
	EndpointSecret        Purpose = "webhook_endpoints.secret"
)

// Keyring holds the encryption keys. The first key encrypts secrets. Every key decrypts the secrets that it has
// encrypted. To replace a key, an operator puts the new key first.
type Keyring struct {
	first string
	keys  map[string]cipher.AEAD
}

var keyIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ParseKeyring parses "KEY_ID:BASE64KEY,…" with keys of 32 bytes. Its errors name the position of a key,
// and never contain the key.
func ParseKeyring(text string) (Keyring, error) {
	ring := Keyring{keys: map[string]cipher.AEAD{}}
	for i, item := range strings.Split(text, ",") {
		id, encoded, ok := strings.Cut(strings.TrimSpace(item), ":")
		if !ok || !keyIDPattern.MatchString(id) {
			return Keyring{}, fmt.Errorf("key %d must have the form KEY_ID:BASE64KEY", i+1)
		}
		if _, twice := ring.keys[id]; twice {
			return Keyring{}, fmt.Errorf("key %d repeats the id of an earlier key", i+1)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != 32 {
			return Keyring{}, fmt.Errorf("key %d must be 32 bytes in base64", i+1)
		}
		sealer, err := newSealer(key)
		if err != nil {
			return Keyring{}, fmt.Errorf("key %d cannot be used", i+1)
		}
		if ring.first == "" {
			ring.first = id
		}
		ring.keys[id] = sealer
	}
	return ring, nil
}

func newSealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// First returns the id of the first key, which encrypts secrets.
func (k Keyring) First() string { return k.first }

// Prefix returns the first bytes of all secrets that the key with the id has encrypted.
func Prefix(id string) []byte { return append([]byte{byte(len(id))}, id...) }

// Seal encrypts plaintext with AES-256-GCM for one tenant and purpose. The result consists of the length of
// the key's id as one byte, the id, the nonce and the ciphertext.
func (k Keyring) Seal(tenant metering.TenantID, purpose Purpose, plaintext []byte) ([]byte, error) {
	sealer, ok := k.keys[k.first]
	if !ok {
		return nil, errors.New("seal secret: the keyring is empty")
	}
	sealed := Prefix(k.first)
	nonce := make([]byte, sealer.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("seal secret: %w", err)
	}
	sealed = append(sealed, nonce...)
	return sealer.Seal(sealed, nonce, plaintext, boundTo(tenant, purpose)), nil
}

// Open decrypts the result of Seal for the same tenant and purpose.
func (k Keyring) Open(tenant metering.TenantID, purpose Purpose, sealed []byte) ([]byte, error) {
	if len(sealed) < 1 || len(sealed) < 1+int(sealed[0]) {
		return nil, errors.New("open secret: the stored secret is truncated")
	}
	id, rest := sealed[1:1+sealed[0]], sealed[1+sealed[0]:]
	sealer, ok := k.keys[string(id)]
	if !ok {
		return nil, errors.New("open secret: ODOMETER_ENCRYPTION_KEYS lacks the key with which the secret was encrypted")
	}
	if len(rest) < sealer.NonceSize() {
		return nil, errors.New("open secret: the stored secret is truncated")
	}
	plaintext, err := sealer.Open(nil, rest[:sealer.NonceSize()], rest[sealer.NonceSize():], boundTo(tenant, purpose))
	if err != nil {
		return nil, errors.New("open secret: the stored secret was changed, or encrypted for another purpose")
	}
	return plaintext, nil
}

func boundTo(tenant metering.TenantID, purpose Purpose) []byte {
	return fmt.Appendf(nil, "%d|%s", tenant, purpose)
}
