package metering

import "time"

// OIDC is how a tenant's members sign in at an issuer of its own.
type OIDC struct {
	Issuer       string
	ClientID     string
	SealedSecret []byte // nil for a public client
	RedirectBase string // where browsers reach the API; the callback's path is appended
	UpdatedAt    time.Time
}

// SignIn is a sign-in at an issuer that has begun, and for a short time waits
// for the browser to come back.
type SignIn struct {
	State     string // what names it in the browser
	Nonce     string // what the ID token has to repeat
	Verifier  string // PKCE: what proves that the code is ours
	ExpiresAt time.Time
}
