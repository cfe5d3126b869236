package metering

import "time"

// MaxHMACSecrets is how many secrets of a tenant are live at once: the old one
// and the new one of a rotation.
const MaxHMACSecrets = 2

// HMACSecret is what a tenant's services sign their requests with.
type HMACSecret struct {
	ID        HMACSecretID
	TenantID  TenantID
	Name      string
	Scope     Scope
	Sealed    []byte
	LastFour  string
	CreatedAt time.Time
	ExpiresAt *time.Time
	RevokedAt *time.Time

	LastUsedAt    *time.Time
	SuccessorID   *HMACSecretID // of the secret that replaces it; it expires when their overlap ends
	OldLastUsedAt *time.Time    // the secret that it replaces, while both are valid
}

// Live says whether the secret is accepted at now.
func (s HMACSecret) Live(now time.Time) bool { return live(s.RevokedAt, s.ExpiresAt, now) }

func live(revokedAt, expiresAt *time.Time, now time.Time) bool {
	return revokedAt == nil && (expiresAt == nil || now.Before(*expiresAt))
}
