package metering

import "time"

// Scope is what an API key was made for.
type Scope string

const (
	ScopeAdmin      Scope = "admin"
	ScopeReadWrite  Scope = "read_write"
	ScopeReadOnly   Scope = "read_only"
	ScopeIngestOnly Scope = "ingest_only"
)

// MaxAPIKeys is how many keys of a tenant are live at once, with the old and the new one
// of a rotation.
const MaxAPIKeys = 1000

// APIKey is a credential's record; the key itself is shown once and not kept.
type APIKey struct {
	ID         KeyID
	TenantID   TenantID
	Name       string
	Scope      Scope
	LastFour   string
	CreatedAt  time.Time
	CreatedBy  Actor
	HandedTo   *Actor // who answers for it since the maker was removed
	ExpiresAt  *time.Time
	RevokedAt  *time.Time
	LastUsedAt *time.Time

	SuccessorID   *KeyID     // of the key that replaces it; it expires when their overlap ends
	OldLastUsedAt *time.Time // the key that it replaces, while both are valid
}

// Live says whether the key is accepted at now.
func (k APIKey) Live(now time.Time) bool { return live(k.RevokedAt, k.ExpiresAt, now) }
