package metering

import "time"

// MaxHMACSecrets is how many secrets of a tenant are live at once: the old one
// and the new one of a rotation.
const MaxHMACSecrets = 2

// Signatures are the versions of signatures that a secret is for.
type Signatures string

const (
	SignaturesV1AndV2 Signatures = "v1_and_v2"
	SignaturesV2      Signatures = "v2" // which also cover where a request goes
)

// Values are all that a secret can be for.
func (Signatures) Values() []Signatures { return []Signatures{SignaturesV1AndV2, SignaturesV2} }

// HMACSecret is what a tenant's services sign their requests with.
type HMACSecret struct {
	ID         HMACSecretID
	TenantID   TenantID
	Name       string
	Scope      Scope
	Signatures Signatures
	Sealed     []byte
	LastFour   string
	CreatedAt  time.Time
	CreatedBy  Actor
	HandedTo   *Actor // who answers for it since the maker was removed
	ExpiresAt  *time.Time
	RevokedAt  *time.Time

	LastUsedAt    *time.Time
	SuccessorID   *HMACSecretID // of the secret that replaces it; it expires when their overlap ends
	OldLastUsedAt *time.Time    // the secret that it replaces, while both are valid
}

// Live says whether the secret is accepted at now.
func (s HMACSecret) Live(now time.Time) bool { return live(s.RevokedAt, s.ExpiresAt, now) }

func live(revokedAt, expiresAt *time.Time, now time.Time) bool {
	return revokedAt == nil && (expiresAt == nil || now.Before(*expiresAt))
}
