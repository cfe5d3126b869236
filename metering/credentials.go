package metering

import "time"

// Scope is the set of permissions of an API key or an HMAC secret.
type Scope string

const (
	ScopeAdmin      Scope = "admin"
	ScopeReadWrite  Scope = "read_write"
	ScopeReadOnly   Scope = "read_only"
	ScopeIngestOnly Scope = "ingest_only"
)

// MaxAPIKeys is the maximum number of valid keys of a tenant. In a rotation, the old and the new key
// both count.
const MaxAPIKeys = 1000

// MaxHMACSecrets is the maximum number of valid secrets of a tenant: the old and the new secret of a
// rotation.
const MaxHMACSecrets = 2

// Signatures is the set of signature versions that are accepted from requests signed with a secret.
type Signatures string

const (
	SignaturesV1AndV2 Signatures = "v1_and_v2"
	SignaturesV2      Signatures = "v2" // only v2, which also covers method, path and query
)

// Values returns all sets of signature versions.
func (Signatures) Values() []Signatures { return []Signatures{SignaturesV1AndV2, SignaturesV2} }

// CredentialKind is the kind of a credential.
type CredentialKind string

// Kinds of credentials that a tenant rotates.
const (
	APIKeyCredential     CredentialKind = "api_key"
	HMACSecretCredential CredentialKind = "hmac_secret"
	WebhookCredential    CredentialKind = "webhook_secret" // signs the messages to an endpoint
)

// Values returns all kinds.
func (CredentialKind) Values() []CredentialKind {
	return []CredentialKind{APIKeyCredential, HMACSecretCredential, WebhookCredential}
}

var credentialWords = map[CredentialKind]struct{ prefix, noun, shortNoun string }{
	APIKeyCredential:     {"key_", "API key", "key"},
	HMACSecretCredential: {"sec_", "HMAC secret", "secret"},
	WebhookCredential:    {"whk_", "webhook secret", "secret"},
}

// Noun returns the noun for the kind in texts, such as "API key".
func (k CredentialKind) Noun() string { return credentialWords[k].noun }

// ShortNoun returns the noun for the kind if the context is clear, such as "key".
func (k CredentialKind) ShortNoun() string { return credentialWords[k].shortNoun }

// Credential is the record of an API key or an HMAC secret. A key is shown once, and only its hash is
// stored. With a secret, a tenant's services sign requests.
type Credential struct {
	ID         CredentialID
	TenantID   TenantID
	Name       string
	Scope      Scope
	LastFour   string
	CreatedAt  time.Time
	CreatedBy  Actor
	HandedTo   *Actor // the actor responsible for the credential since the removal of a member
	ExpiresAt  *time.Time
	RevokedAt  *time.Time
	LastUsedAt *time.Time

	SuccessorID   *CredentialID // the credential that replaces this one; this one expires when the overlap of both ends
	OldLastUsedAt *time.Time    // last use of the credential that this one replaces, while both are valid

	Hash       []byte     // keyed hash of a new API key; not read back
	Sealed     []byte     // of an HMAC secret
	Signatures Signatures // of an HMAC secret
}

// Live reports whether the credential is accepted at now.
func (c Credential) Live(now time.Time) bool {
	return c.RevokedAt == nil && (c.ExpiresAt == nil || now.Before(*c.ExpiresAt))
}

// Bounds of the overlap, in which the old and the new credential are both valid, and the default for
// secrets.
const (
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 7 * 24 * time.Hour
)

// ExpiryNotice is how long before the expiry of a credential the tenant is notified.
const ExpiryNotice = 7 * 24 * time.Hour

// RotationOutcome is the reason why the overlap of a rotation ended.
type RotationOutcome string

const (
	RotationExpired    RotationOutcome = "expired"    // the overlap ended as planned, at Until
	RotationFinished   RotationOutcome = "finished"   // an operator ended the old credential early
	RotationRevoked    RotationOutcome = "revoked"    // the old credential was revoked
	RotationKept       RotationOutcome = "kept"       // an operator canceled the rotation: the old credential stays valid
	RotationSuperseded RotationOutcome = "superseded" // the old credential was rotated again
)

// Values returns all outcomes.
func (RotationOutcome) Values() []RotationOutcome {
	return []RotationOutcome{RotationExpired, RotationFinished, RotationRevoked, RotationKept, RotationSuperseded}
}

// Rotation replaces an old credential with a new one. Both are valid until Until. Until is also stored as
// the expiry of the old credential, so the old credential expires even if no workflow runs.
type Rotation struct {
	TenantID     TenantID
	ID           RotationID
	OldID        CredentialID // of the same kind as NewID
	NewID        CredentialID
	CreatedAt    time.Time
	Until        time.Time
	OldExpiresAt *time.Time // the expiry of the old credential without a rotation; nil: none
	LastUsedAt   *time.Time // of the old credential; nil for a webhook's secret: Odometer cannot observe its use
	WarnedAt     *time.Time // the time of the warning that the old credential is still used
	EndedAt      *time.Time
	Outcome      RotationOutcome // "": not ended, or the end is not recorded yet
}

// Old returns the name of the old credential in messages. The name contains its id in the API, or the id of
// the webhook.
func (r Rotation) Old() string {
	if r.OldID.Kind == WebhookCredential {
		return "the previous secret of " + r.OldID.String()
	}
	return r.OldID.String()
}

// New returns the name of the new credential in messages, like Old.
func (r Rotation) New() string {
	if r.NewID.Kind == WebhookCredential {
		return "the secret of " + r.NewID.String()
	}
	return r.NewID.String()
}

// WarnAt returns the time to warn that the old credential is still used: when a quarter of the overlap is
// left.
func (r Rotation) WarnAt() time.Time { return r.Until.Add(-r.Until.Sub(r.CreatedAt) / 4) }

// StillUsed reports whether the old credential was used in the second half of the overlap. Its users are
// expected to switch to the new credential in the first half.
func (r Rotation) StillUsed() bool {
	return r.LastUsedAt != nil && r.LastUsedAt.After(r.CreatedAt.Add(r.Until.Sub(r.CreatedAt)/2))
}
