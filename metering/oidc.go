package metering

import "time"

// OIDC is how a tenant's members sign in at an issuer of its own.
type OIDC struct {
	Issuer       string
	ClientID     string
	SealedSecret []byte // nil for a public client
	UpdatedAt    time.Time
}

// Identity is an account at an issuer, which means something in one tenant alone.
type Identity struct {
	Issuer  string
	Subject string
}

// SignIn is a sign-in at an issuer that has begun, and for a short time waits
// for the browser to come back.
type SignIn struct {
	TenantID     TenantID
	StateHash    []byte        // of what names it in the browser
	InvitationID *InvitationID // which is accepted by it; nil: none
	ExpiresAt    time.Time
}
