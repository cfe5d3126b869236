// Package access stores identities of callers and the endpoints that Odometer calls: API keys, HMAC secrets,
// members, sessions, sign-in providers and webhooks, with the audit log of a tenant's changes.
package access

import "github.com/odometer-metering/odometer/db/pg"

// Stores are the stores of the package.
type Stores struct {
	Credentials Credentials
	RequestIDs  RequestIDs
	People      People
	Members     Members
	Invitations Invitations
	Sessions    Sessions
	OIDC        OIDC
	AuditLog    AuditLog
	Rotations   Rotations
	Secrets     Secrets
	Webhooks    Webhooks
	Deliveries  Deliveries
}

// New returns stores that use the pool.
func New(pool *pg.Pool) Stores {
	return Stores{
		Credentials: Credentials{pool},
		RequestIDs:  RequestIDs{pool},
		People:      People{pool},
		Members:     Members{pool},
		Invitations: Invitations{pool},
		Sessions:    Sessions{pool},
		OIDC:        OIDC{pool},
		AuditLog:    AuditLog{pool},
		Rotations:   Rotations{pool},
		Secrets:     Secrets{pool},
		Webhooks:    Webhooks{pool},
		Deliveries:  Deliveries{pool},
	}
}

// Creators are the stores of the resources that a request with an idempotency key can create.
type Creators struct {
	Credentials Credentials
	Invitations Invitations
	Webhooks    Webhooks
	Rotations   Rotations
}

// NewCreators returns stores that use a transaction or a pool. With a pool, each call of a method is its own
// transaction.
func NewCreators(within pg.Beginner) Creators {
	return Creators{Credentials{within}, Invitations{within}, Webhooks{within}, Rotations{within}}
}
