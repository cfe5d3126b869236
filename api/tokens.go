package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/metering"
)

const (
	tokenIssuer = "odometer"
	maxToken    = 1024 // bytes; tokens have some 350
)

// tokens creates and reads the JWTs of members. A token only names its session. The session's validity and
// the member's permissions are read from the database.
type tokens struct {
	key    []byte
	signer jose.Signer
}

type sessionClaims struct {
	Tenant  string    `json:"tenant"`
	Session uuid.UUID `json:"sid"`
}

func newTokens(secret []byte) (*tokens, error) {
	key, err := derive(secret, "session-tokens")
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: key}, new(jose.SignerOptions).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("make token signer: %w", err)
	}
	return &tokens{key, signer}, nil
}

func (t *tokens) make(s metering.Session) (string, error) {
	registered := jwt.Claims{
		Issuer: tokenIssuer, Subject: s.MemberID.String(),
		IssuedAt: jwt.NewNumericDate(s.CreatedAt), Expiry: jwt.NewNumericDate(s.ExpiresAt),
	}
	return jwt.Signed(t.signer).Claims(registered).Claims(sessionClaims{s.TenantID.String(), s.ID}).Serialize()
}

// isToken reports whether a credential has the form of a session token, not of an API key.
func isToken(text string) bool { return strings.Count(text, ".") == 2 }

// read returns the session that a token names. ok is false if the token is invalid or expired.
func (t *tokens) read(text string, now time.Time) (name access.SessionName, ok bool) {
	if len(text) > maxToken {
		return name, false
	}
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.HS256})
	if err != nil {
		return name, false
	}
	var registered jwt.Claims
	var session sessionClaims
	if token.Claims(t.key, &registered, &session) != nil || registered.Expiry == nil ||
		registered.ValidateWithLeeway(jwt.Expected{Issuer: tokenIssuer, Time: now}, 0) != nil {
		return name, false
	}
	member, known := metering.ParseMemberID(registered.Subject)
	tenant, ours := metering.ParseTenantID(session.Tenant)
	return access.SessionName{Tenant: tenant, Member: member, Session: session.Session}, known && ours
}
