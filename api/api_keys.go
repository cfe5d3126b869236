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
	HandedTo   *metering.Actor `json:"handed_to" doc:"Member or credential that is responsible for the key since the removal of a member"`
	ExpiresAt  *time.Time      `json:"expires_at"`
	RevokedAt  *time.Time      `json:"revoked_at"`
	LastUsedAt *time.Time      `json:"last_used_at"`

	Successor     *string    `json:"successor_id" doc:"Id of the key that replaces this key. The replaced key stays valid until its expires_at, unless it is revoked earlier"`
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

func (s *server) showAPIKey(c metering.Credential) APIKeyMetadata {
	return APIKeyMetadata{
		ID: c.ID.String(), Prefix: s.Keys.Prefix(c.Scope), Scope: c.Scope, Name: c.Name, LastFour: c.LastFour,
		CreatedAt: c.CreatedAt.UTC(), CreatedBy: c.CreatedBy, HandedTo: c.HandedTo, ExpiresAt: c.ExpiresAt, RevokedAt: c.RevokedAt, LastUsedAt: c.LastUsedAt,
		Successor: successorOf(c), OldLastUsedAt: c.OldLastUsedAt,
	}
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
		return nil, secretNotRepeated(shown.ID, shown.LastFour)
	}
	return &createAPIKeyOutput{createdAPIKey{key, shown}}, nil
}

type listAPIKeysOutput struct{ Body List[APIKeyMetadata] }

func (s *server) listAPIKeys(ctx context.Context, in *struct{ Paging }) (*listAPIKeysOutput, error) {
	list, err := listCredentials(ctx, s, metering.APIKeyCredential, in.Paging, s.showAPIKey)
	return &listAPIKeysOutput{list}, err
}

type revokeAPIKeyInput struct {
	ID string `path:"id" example:"key_12"`
}

type revokeAPIKeyOutput revokedCredential

func (s *server) revokeAPIKey(ctx context.Context, in *revokeAPIKeyInput) (*revokeAPIKeyOutput, error) {
	out, err := s.revokeCredential(ctx, metering.APIKeyCredential, in.ID)
	return (*revokeAPIKeyOutput)(out), err
}
