package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// APIKeyMetadata is the metadata of an API key, without the key.
type APIKeyMetadata struct {
	ID         string          `json:"id" example:"key_12"`
	Prefix     string          `json:"prefix" example:"svc_adm_"`
	Scope      metering.Scope  `json:"scope"`
	Name       string          `json:"name"`
	LastFour   string          `json:"last_four"`
	CreatedAt  time.Time       `json:"created_at"`
	CreatedBy  metering.Actor  `json:"created_by" example:"member_3" doc:"Creator of the key: a member, another credential, or 'operator' for the command line"`
	HandedTo   *metering.Actor `json:"handed_to" doc:"Member responsible for the key since its creator was removed"`
	ExpiresAt  *time.Time      `json:"expires_at"`
	RevokedAt  *time.Time      `json:"revoked_at"`
	LastUsedAt *time.Time      `json:"last_used_at"`

	Successor     *string    `json:"successor_id" doc:"Id of the new key. This key also stays valid until its expires_at"`
	OldLastUsedAt *time.Time `json:"old_last_used_at" doc:"Last use of the replaced key, while both keys are valid"`
}

func (s *server) registerAPIKeys() {
	huma.Register(s.api, created(post("create-api-key", "/v1/api-keys", KeysManage, "Create an API key",
		"The key is shown only in this response.\n\n"+
			"- A key cannot have more permissions than its creator.\n"+
			"- A tenant has at most 1,000 valid keys. Beyond that the request returns 409.")), s.createAPIKey)
	huma.Register(s.api, get("list-api-keys", "/v1/api-keys", KeysManage, "List API keys",
		"Keys are listed newest first, including revoked and expired keys. The keys themselves are not stored."), s.listAPIKeys)
	huma.Register(s.api, post("revoke-api-key", "/v1/api-keys/{id}/revoke", KeysManage, "Revoke an API key",
		"The key is invalid on every replica as soon as the response is sent. A rotation of the key ends. Revoking the key again changes nothing."), s.revokeAPIKey)
}

func (s *server) showAPIKey(k metering.Credential) APIKeyMetadata {
	shown := APIKeyMetadata{
		ID: k.ID.String(), Prefix: s.Keys.Prefix(k.Scope), Scope: k.Scope, Name: k.Name, LastFour: k.LastFour,
		CreatedAt: k.CreatedAt.UTC(), CreatedBy: k.CreatedBy, HandedTo: k.HandedTo, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, LastUsedAt: k.LastUsedAt,
		OldLastUsedAt: k.OldLastUsedAt,
	}
	if k.SuccessorID != nil {
		shown.Successor = new(k.SuccessorID.String())
	}
	return shown
}

// NewCredential is the fields of a new credential that a client can set.
type NewCredential struct {
	Name      string         `json:"name" minLength:"1" maxLength:"255"`
	Scope     metering.Scope `json:"scope" doc:"Permissions of the key. A key cannot have more permissions than its creator"`
	ExpiresAt *SentTime      `json:"expires_at,omitempty" doc:"Time from which the key is invalid. Without expires_at, the key never expires"`
}

func (c NewCredential) check(who Principal, now time.Time) error {
	if !within(Principal{Scope: c.Scope}, who) {
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

type createAPIKeyInput struct {
	Repeatable
	Body struct{ NewCredential }
}

type createAPIKeyOutput struct{ Body createdAPIKey }

type createdAPIKey struct {
	Key string `json:"key" doc:"The complete key, shown only in this response"`
	APIKeyMetadata
}

func (s *server) createAPIKey(ctx context.Context, in *createAPIKeyInput) (*createAPIKeyOutput, error) {
	who := principalOf(ctx)
	if err := in.Body.check(who, s.Now()); err != nil {
		return nil, err
	}
	key, record := s.Keys.Make(in.Body.Scope)
	record.Name, record.ExpiresAt = in.Body.Name, in.Body.ExpiresAt.pointer()
	shown, repeated, err := once(ctx, s, in.Repeatable, "create-api-key", in.Body, func(within db.Creators) (APIKeyMetadata, error) {
		made, err := within.Credentials.Create(ctx, who.Tenant.ID, who.Actor, metering.APIKeyCredential, record, s.Now())
		return s.showAPIKey(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, alreadyMade(shown.ID, shown.LastFour)
	}
	return &createAPIKeyOutput{createdAPIKey{key, shown}}, nil
}

type listAPIKeysOutput struct{ Body List[APIKeyMetadata] }

func (s *server) listAPIKeys(ctx context.Context, in *struct{ Paging }) (*listAPIKeysOutput, error) {
	var before int64
	if err := s.readPageToken(ctx, in.PageToken, &before); err != nil {
		return nil, err
	}
	keys, err := s.Store.Credentials.List(ctx, principalOf(ctx).Tenant.ID, metering.APIKeyCredential, before, in.PageSize)
	if err != nil {
		return nil, err
	}
	cursorOf := func(k metering.Credential) int64 { return k.ID.Number }
	return &listAPIKeysOutput{listOf(ctx, s, keys, s.showAPIKey, cursorOf)}, nil
}

type revokeAPIKeyInput struct {
	ID string `path:"id" example:"key_12"`
}

type revokeAPIKeyOutput struct {
	Body struct {
		ID      string `json:"id"`
		Revoked bool   `json:"revoked"`
	}
}

func (s *server) revokeAPIKey(ctx context.Context, in *revokeAPIKeyInput) (*revokeAPIKeyOutput, error) {
	who := principalOf(ctx)
	id, ok := parseKeyID(in.ID)
	if !ok {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such API key")
	}
	if err := s.Store.Credentials.Revoke(ctx, who.Tenant.ID, who.Actor, id); err != nil {
		return nil, err
	}
	out := new(revokeAPIKeyOutput)
	out.Body.ID, out.Body.Revoked = id.String(), true
	return out, nil
}

func parseKeyID(text string) (metering.CredentialID, bool) {
	id, ok := metering.ParseCredentialID(text)
	return id, ok && id.Kind == metering.APIKeyCredential
}
