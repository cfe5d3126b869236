package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// NewCredential is the fields of a new credential that a client can set.
type NewCredential struct {
	Name      string         `json:"name" minLength:"1" maxLength:"255"`
	Scope     metering.Scope `json:"scope" doc:"Permissions of the key. A key cannot have more permissions than its creator"`
	ExpiresAt *SentTime      `json:"expires_at,omitempty" doc:"Time from which the key is invalid. Without expires_at, the key never expires"`
}

func (c NewCredential) check(who Principal, now time.Time) error {
	if !mayGrant(who, Principal{Scope: c.Scope}) {
		return metering.Errorf(metering.CodeForbidden, "the scope must not have more permissions than the caller")
	}
	if !storable(c.Name) {
		return metering.Invalid("body.name", "must be UTF-8 without NUL")
	}
	if c.ExpiresAt == nil {
		return nil
	}
	if !c.ExpiresAt.After(now) {
		return metering.Invalid("body.expires_at", "must be in the future")
	}
	return nil
}

// parseCredentialID parses the id of a credential of the kind. It returns CodeNotFound for other texts.
func parseCredentialID(kind metering.CredentialKind, text string) (metering.CredentialID, error) {
	id, ok := metering.ParseCredentialID(text)
	if !ok || id.Kind != kind {
		return id, metering.Errorf(metering.CodeNotFound, "there is no such %s", kind.Noun())
	}
	return id, nil
}

// successorOf returns the id of the credential that replaces c, or nil.
func successorOf(c metering.Credential) *string {
	if c.SuccessorID == nil {
		return nil
	}
	return new(c.SuccessorID.String())
}

// listCredentials returns a page of the tenant's credentials of a kind.
func listCredentials[Item any](ctx context.Context, s *server, kind metering.CredentialKind, in Paging, show func(metering.Credential) Item) (list List[Item], err error) {
	var before int64
	if err := s.readPageToken(ctx, in.PageToken, &before); err != nil {
		return list, err
	}
	page, err := s.Store.Credentials.List(ctx, principalOf(ctx).Tenant.ID, kind, before, in.PageSize)
	if err != nil {
		return list, err
	}
	return listOf(ctx, s, page, show, func(c metering.Credential) int64 { return c.ID.Number }), nil
}

type revokedCredential struct {
	Body struct {
		ID      string `json:"id"`
		Revoked bool   `json:"revoked"`
	}
}

func (s *server) revokeCredential(ctx context.Context, kind metering.CredentialKind, text string) (*revokedCredential, error) {
	who := principalOf(ctx)
	id, err := parseCredentialID(kind, text)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Credentials.Revoke(ctx, who.Tenant.ID, who.Actor, id); err != nil {
		return nil, err
	}
	out := new(revokedCredential)
	out.Body.ID, out.Body.Revoked = id.String(), true
	return out, nil
}

// rotatableCredential returns the credential to rotate. It returns an error if the credential has a permission that the
// caller lacks.
func (s *server) rotatableCredential(ctx context.Context, kind metering.CredentialKind, text string) (metering.Credential, error) {
	who := principalOf(ctx)
	id, err := parseCredentialID(kind, text)
	if err != nil {
		return metering.Credential{}, err
	}
	c, err := s.Store.Credentials.Get(ctx, who.Tenant.ID, id)
	if err == nil && !mayGrant(who, Principal{Scope: c.Scope}) {
		err = metering.Errorf(metering.CodeForbidden, "a %s can be rotated only by a caller with at least its permissions", kind.ShortNoun())
	}
	return c, err
}
