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

	SuccessorID *HMACSecretID // of the secret that replaces it; it expires when their overlap ends
}

// Live says whether the secret is accepted at now.
func (s HMACSecret) Live(now time.Time) bool { return live(s.RevokedAt, s.ExpiresAt, now) }

func live(revokedAt, expiresAt *time.Time, now time.Time) bool {
	return revokedAt == nil && (expiresAt == nil || now.Before(*expiresAt))
}

// Bounds of how long a replaced secret stays valid beside its successor.
const (
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 7 * 24 * time.Hour
)

// OverlapStatus is where the replacement of a secret stands.
type OverlapStatus string

const (
	BothValid  OverlapStatus = "both_valid"
	OldRevoked OverlapStatus = "old_revoked"
	BothKept   OverlapStatus = "both_kept" // an operator has called it off: the old one is as if it had no successor
)

// Overlap says where the replacement of the secret stands.
func (s HMACSecret) Overlap() OverlapStatus {
	switch {
	case s.RevokedAt != nil:
		return OldRevoked
	case s.SuccessorID == nil:
		return BothKept
	}
	return BothValid
}
