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

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// Principal is who is asking: a member with a role, or a program with a scope.
type Principal struct {
	Tenant metering.Tenant
	Actor  metering.Actor
	Scope  metering.Scope
	Role   metering.Role

	// Of a member.
	Member  metering.Member
	Session metering.Session
}

// String says what the permissions come from.
func (p Principal) String() string {
	if p.Role != "" {
		return "Role " + string(p.Role)
	}
	return p.kind() + " scope " + string(p.Scope)
}

// kind is what sort of credential a program came with.
func (p Principal) kind() string {
	if strings.HasPrefix(string(p.Actor), "sec_") {
		return "HMAC secret"
	}
	return "API key"
}

// scopePrefixes is how a key names its scope.
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

// Keys makes API keys and their hashes. Whoever holds the database alone can
// neither recognise a key nor make one.
type Keys struct {
	prefix string
	pepper []byte
}

// NewKeys derives the hash key from the service's secret.
func NewKeys(prefix string, secret []byte) (Keys, error) {
	pepper, err := derive(secret, "api-keys")
	return Keys{prefix, pepper}, err
}

func derive(secret []byte, purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "odometer/"+purpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive key for %s: %w", purpose, err)
	}
	return key, nil
}

// Make returns a new key, the hash to keep of it, and its last four characters.
func (k Keys) Make(scope metering.Scope) (key string, hash []byte, lastFour string) {
	random := randomText(randomLength)
	key = k.Prefix(scope) + random
	return key, k.hash(key), random[randomLength-4:]
}

// randomText returns length letters and digits, each as likely as any other.
func randomText(length int) string {
	random := make([]byte, 0, length)
	for len(random) < length {
		var b [1]byte
		rand.Read(b[:]) // never fails, or ends the program
		if n := int(b[0]); n < 4*len(base62) {
			random = append(random, base62[n%len(base62)])
		}
	}
	return string(random)
}

// Prefix is how every key of a scope begins.
func (k Keys) Prefix(scope metering.Scope) string {
	return k.prefix + "_" + scopePrefixes[scope] + "_"
}

func (k Keys) hash(key string) []byte {
	mac := hmac.New(sha256.New, k.pepper)
	mac.Write([]byte(key))
	return mac.Sum(nil)
}

// wellFormed spares the database texts that cannot be keys.
func (k Keys) wellFormed(key string) bool {
	for scope := range scopePrefixes {
		if random, ok := strings.CutPrefix(key, k.Prefix(scope)); ok {
			return len(random) == randomLength && strings.Trim(random, base62) == ""
		}
	}
	return false
}

var errUnauthorized = metering.Errorf(metering.CodeUnauthorized, "the credentials are missing or invalid")

// authorize lets an operation run only for those who have its permission.
func (s *server) authorize(ctx huma.Context, next func(huma.Context)) {
	permission, _ := ctx.Operation().Metadata["permission"].(Permission)
	if permission == Public {
		next(on(ctx, strangers))
		return
	}
	if err := s.admit(ctx, permission); err != nil {
		s.refuseOperation(ctx, err)
		return
	}
	next(on(ctx, principalOf(ctx.Context()).Tenant.ID))
}

// strangers share connections to the database as if they were one tenant.
const strangers metering.TenantID = 0

// on has what an operation does use the tenant's share of connections.
func on(ctx huma.Context, tenant metering.TenantID) huma.Context {
	return huma.WithContext(ctx, db.For(ctx.Context(), tenant))
}

// admit finds out who asks, whether they may, and whether now.
func (s *server) admit(ctx huma.Context, permission Permission) (err error) {
	x := exchangeOf(ctx.Context())
	x.principal, err = s.failures.guard(ctx, x.request, s.authenticate)
	if err != nil {
		return err
	}
	if err := s.charge(ctx, x.principal); err != nil {
		return err
	}
	if !permission.allows(x.principal) {
		return metering.Errorf(metering.CodeForbidden, "%s lacks permission %s", x.principal, permission)
	}
	if err := x.body.payByTenant(s.bodies, x.principal.Tenant.ID); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	x.setConnection(ConnectionVerified)
	return nil
}

// noteUses notes which keys are in use.
func (s *server) noteUses(ctx context.Context, uses []db.KeyUse) (map[db.KeyUse]struct{}, error) {
	err := s.Credentials.APIKeys.Used(ctx, uses, s.Now())
	if err != nil {
		s.Log.WarnContext(ctx, "cannot record the last use of API keys", "error", err)
	}
	return nil, err
}

// noteSecretUses notes which HMAC secrets are in use.
func (s *server) noteSecretUses(ctx context.Context, uses []db.SecretUse) (map[db.SecretUse]struct{}, error) {
	err := s.Credentials.HMACSecrets.Used(ctx, uses, s.Now())
	if err != nil {
		s.Log.WarnContext(ctx, "cannot record the last use of HMAC secrets", "error", err)
	}
	return nil, err
}

// authenticate tells the kinds of credentials apart by their form.
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

// byKey finds out whose API key it is.
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
		s.auditDead(ctx, found.Tenant.ID, "api_key", found.Key.ID.String(), found.Key.RevokedAt != nil)
		return Principal{}, errUnauthorized
	}
	if used := found.Key.LastUsedAt; used == nil || now.Sub(*used) >= time.Minute {
		s.uses.board(ctx, db.KeyUse{Tenant: found.Tenant.ID, Key: found.Key.ID}) // nobody waits for it
	}
	return Principal{Tenant: found.Tenant, Actor: metering.Actor(found.Key.ID.String()), Scope: found.Key.Scope}, nil
}
