package api

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Principal is the authenticated caller: a member with a role, or a credential with a scope.
type Principal struct {
	Tenant metering.Tenant
	Actor  metering.Actor
	Scope  metering.Scope
	Role   metering.Role

	// Member and Session are set only if the caller is a member.
	Member  metering.Member
	Session metering.Session
}

// String describes the source of the caller's permissions, such as "Role owner" or "API key scope admin".
func (p Principal) String() string {
	if p.Role != "" {
		return "Role " + string(p.Role)
	}
	return p.kind() + " scope " + string(p.Scope)
}

// kind returns the kind of the caller's credential, if the caller is not a member.
func (p Principal) kind() string {
	id, _ := metering.ParseCredentialID(string(p.Actor))
	return id.Kind.Noun()
}

// scopePrefixes maps each scope to its abbreviation in the prefix of an API key.
var scopePrefixes = map[metering.Scope]string{
	metering.ScopeAdmin:      "adm",
	metering.ScopeReadWrite:  "rw",
	metering.ScopeReadOnly:   "ro",
	metering.ScopeIngestOnly: "ink",
}

const (
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomLength = 32
)

// Keys creates API keys and their hashes. The hashes are keyed with a secret that is not in the database. With
// a copy of the database alone, a key can be neither verified nor created.
type Keys struct {
	prefix string
	pepper []byte
}

// NewKeys derives the hash key from the service's secret.
func NewKeys(prefix string, secret []byte) (Keys, error) {
	pepper, err := derive(secret, "api-keys")
	return Keys{prefix, pepper}, err
}

// derive returns the key for one purpose, derived from the service's secret.
func derive(secret []byte, purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "odometer/"+purpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive key for %s: %w", purpose, err)
	}
	return key, nil
}

// Make returns a new key and its record to store.
func (k Keys) Make(scope metering.Scope) (key string, record metering.Credential) {
	random := randomText(randomLength)
	key = k.Prefix(scope) + random
	return key, metering.Credential{Scope: scope, Hash: k.hash(key), LastFour: random[randomLength-4:]}
}

// randomText returns uniformly random letters and digits.
func randomText(length int) string {
	random := make([]byte, 0, length)
	for len(random) < length {
		var b [1]byte
		rand.Read(b[:]) // never returns an error
		if n := int(b[0]); n < 4*len(base62) {
			random = append(random, base62[n%len(base62)])
		}
	}
	return string(random)
}

// Prefix returns the prefix of every key of a scope.
func (k Keys) Prefix(scope metering.Scope) string {
	return k.prefix + "_" + scopePrefixes[scope] + "_"
}

func (k Keys) hash(key string) []byte {
	mac := hmac.New(sha256.New, k.pepper)
	mac.Write([]byte(key))
	return mac.Sum(nil)
}

// wellFormed reports whether a text has the form of an API key. byKey rejects other texts without a database
// query.
func (k Keys) wellFormed(key string) bool {
	for scope := range scopePrefixes {
		if random, ok := strings.CutPrefix(key, k.Prefix(scope)); ok {
			return len(random) == randomLength && strings.Trim(random, base62) == ""
		}
	}
	return false
}

var errUnauthorized = metering.Errorf(metering.CodeUnauthorized, "the credentials are missing or invalid")

// authorize runs an operation only if the caller has its permission. Public operations need no credential.
func (s *server) authorize(ctx huma.Context, next func(huma.Context)) {
	exchangeOf(ctx.Context()).body.accept(ctx.Operation())
	permission, _ := ctx.Operation().Metadata["permission"].(Permission)
	if permission == Public {
		next(withTenantShare(ctx, strangers))
		return
	}
	if err := s.admit(ctx, permission); err != nil {
		s.refuseOperation(ctx, err)
		return
	}
	s.decodeInTurn(withTenantShare(ctx, principalOf(ctx.Context()).Tenant.ID), next)
}

// strangers is the tenant ID under which unauthenticated requests share database connections.
const strangers metering.TenantID = 0

// withTenantShare returns a context for database queries that use the tenant's share of the connections.
func withTenantShare(ctx huma.Context, tenant metering.TenantID) huma.Context {
	return huma.WithContext(ctx, pg.For(ctx.Context(), tenant))
}

// admit authenticates the caller, counts the request against its rate limits and checks the permission. It also moves
// the body's memory to the tenant's share, and counts the request among the tenant's requests in progress.
func (s *server) admit(ctx huma.Context, permission Permission) (err error) {
	x := exchangeOf(ctx.Context())
	x.principal, err = s.failures.guard(ctx, x.request, s.authenticate)
	if err != nil {
		return err
	}
	if err := s.countRequest(ctx, x.principal); err != nil {
		return err
	}
	if !permission.allows(x.principal) {
		return metering.Errorf(metering.CodeForbidden, "%s lacks permission %s", x.principal, permission)
	}
	if err := x.body.moveToTenant(s.bodies, x.principal.Tenant.ID); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	x.setConnection(ConnectionVerified)
	return nil
}

// noteUse records the use of a credential, unless a use within the last minute is recorded. The request does
// not wait for the write.
func (s *server) noteUse(ctx context.Context, c metering.Credential, now time.Time) {
	if used := c.LastUsedAt; used == nil || now.Sub(*used) >= time.Minute {
		s.uses.board(ctx, access.CredentialUse{Tenant: c.TenantID, ID: c.ID})
	}
}

// recordUses records the last use of credentials.
func (s *server) recordUses(ctx context.Context, uses []access.CredentialUse) (map[access.CredentialUse]struct{}, error) {
	err := s.Authentication.Credentials.Used(ctx, uses, s.Now())
	if err != nil {
		s.Log.WarnContext(ctx, "cannot record the last use of credentials", "error", err)
	}
	return nil, err
}

// principalBy returns the caller that a credential authenticates.
func principalBy(tenant metering.Tenant, c metering.Credential) Principal {
	return Principal{Tenant: tenant, Actor: metering.Actor(c.ID.String()), Scope: c.Scope}
}

// authenticate selects the kind of credential by the form of the Authorization header. Without the header,
// the session cookie is the credential.
func (s *server) authenticate(ctx huma.Context) (Principal, error) {
	scheme, credential, _ := strings.Cut(ctx.Header("Authorization"), " ")
	switch {
	case scheme == "":
		return s.byCookie(ctx)
	case strings.EqualFold(scheme, "HMAC"):
		return s.bySignature(ctx.Context(), credential)
	case !strings.EqualFold(scheme, "Bearer"):
		return Principal{}, errUnauthorized
	case isToken(credential):
		return s.byToken(ctx.Context(), credential)
	}
	return s.byKey(ctx.Context(), credential)
}

// byKey authenticates an API key. The audit log records the use of a revoked or expired key.
func (s *server) byKey(ctx context.Context, key string) (Principal, error) {
	if !s.Keys.wellFormed(key) {
		return Principal{}, errUnauthorized
	}
	found, err := s.apiKeys.find(ctx, string(s.Keys.hash(key)))
	if err != nil {
		return Principal{}, err
	}
	now := s.Now()
	if found == nil {
		return Principal{}, errUnauthorized
	}
	if !found.Key.Live(now) {
		s.auditDead(ctx, found.Key)
		return Principal{}, errUnauthorized
	}
	s.noteUse(ctx, found.Key, now)
	return principalBy(found.Tenant, found.Key), nil
}
