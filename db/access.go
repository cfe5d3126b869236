package db

import (
	"github.com/odometer-metering/odometer/db/pg"
)

// accessStores are the stores of the package.
type accessStores struct {
	APIKeys     APIKeys
	HMACSecrets HMACSecrets
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
	Credentials Credentials
}

// newAccess returns stores that use the pool.
func newAccess(pool *pg.Pool) accessStores {
	return accessStores{
		APIKeys:     APIKeys{pool},
		HMACSecrets: HMACSecrets{pool},
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
		Credentials: Credentials{pool},
	}
}

// accessCreators are the stores of the resources that a request with an idempotency key can create.
type accessCreators struct {
	APIKeys     APIKeys
	HMACSecrets HMACSecrets
	Invitations Invitations
	Webhooks    Webhooks
	Rotations   Rotations
}

// newAccessCreators returns stores that use a transaction, or a pool: each call of a method is a transaction then.
func newAccessCreators(within pg.Beginner) accessCreators {
	return accessCreators{APIKeys{within}, HMACSecrets{within}, Invitations{within}, Webhooks{within}, Rotations{within}}
}
