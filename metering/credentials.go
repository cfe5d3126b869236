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

// Live reports whether the key is accepted at now.
func (k APIKey) Live(now time.Time) bool { return live(k.RevokedAt, k.ExpiresAt, now) }

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

// Live reports whether the secret is accepted at now.
func (s HMACSecret) Live(now time.Time) bool { return live(s.RevokedAt, s.ExpiresAt, now) }

func live(revokedAt, expiresAt *time.Time, now time.Time) bool {
	return revokedAt == nil && (expiresAt == nil || now.Before(*expiresAt))
}

// CredentialKind says what a credential is.
type CredentialKind string

// Kinds of credentials that are rotated one by one.
const (
	APIKeyCredential     CredentialKind = "api_key"
	HMACSecretCredential CredentialKind = "hmac_secret"
	WebhookCredential    CredentialKind = "webhook_secret" // what messages to an endpoint are signed with
)

// Values are all kinds.
func (CredentialKind) Values() []CredentialKind {
	return []CredentialKind{APIKeyCredential, HMACSecretCredential, WebhookCredential}
}

// Bounds of how long an old credential stays valid beside the new one, and how
// long a secret does unless the request says.
const (
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 7 * 24 * time.Hour
)

// ExpiryNotice is how long before its expiry a credential is reported.
const ExpiryNotice = 7 * 24 * time.Hour

// RotationOutcome is how the time in which both credentials are valid has ended.
type RotationOutcome string

const (
	RotationExpired    RotationOutcome = "expired"    // it was over: the old one is not valid any more
	RotationFinished   RotationOutcome = "finished"   // an operator has ended the old one early
	RotationRevoked    RotationOutcome = "revoked"    // somebody has revoked the old one
	RotationKept       RotationOutcome = "kept"       // an operator has called it off: the old one is as if it had not been rotated
	RotationSuperseded RotationOutcome = "superseded" // the old one was rotated again
)

// Values are all outcomes.
func (RotationOutcome) Values() []RotationOutcome {
	return []RotationOutcome{RotationExpired, RotationFinished, RotationRevoked, RotationKept, RotationSuperseded}
}

// Rotation puts a new credential in the place of an old one. Both are valid
// until Until, which is also the old one's own end: whether a rotation is
// looked after makes no difference to what is accepted.
type Rotation struct {
	TenantID     TenantID
	ID           RotationID
	Kind         CredentialKind
	OldID        int64 // of a webhook's secret, the webhook's
	NewID        int64
	CreatedAt    time.Time
	Until        time.Time
	OldExpiresAt *time.Time // when the old one would have expired by itself
	LastUsedAt   *time.Time // the old one; of a webhook's secret only its receiver knows
	WarnedAt     *time.Time // that the old one is still used
	EndedAt      *time.Time
	Outcome      RotationOutcome // "": both are valid, or it is not recorded yet that they are not
}

// Old names the old credential as the API does.
func (r Rotation) Old() string {
	if r.Kind == WebhookCredential {
		return "the previous secret of " + EndpointID(r.OldID).String()
	}
	return r.name(r.OldID)
}

// New names the new credential as the API does.
func (r Rotation) New() string {
	if r.Kind == WebhookCredential {
		return "the secret of " + EndpointID(r.NewID).String()
	}
	return r.name(r.NewID)
}

func (r Rotation) name(id int64) string {
	if r.Kind == APIKeyCredential {
		return KeyID(id).String()
	}
	return HMACSecretID(id).String()
}

// WarnAt is when the end is near: whoever still uses the old credential then
// has a quarter of the overlap left to change that.
func (r Rotation) WarnAt() time.Time { return r.Until.Add(-r.Until.Sub(r.CreatedAt) / 4) }

// StillUsed says whether the old credential was used in the overlap's later
// half. In the earlier one its users are expected to change over.
func (r Rotation) StillUsed() bool {
	return r.LastUsedAt != nil && r.LastUsedAt.After(r.CreatedAt.Add(r.Until.Sub(r.CreatedAt)/2))
}
