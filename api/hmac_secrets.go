package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
)

// Form of a secret: the prefix and random characters with at least the entropy of 32 random bytes.
const (
	secretPrefix = "hms_"
	secretLength = 43 // 62^43 > 2^256
)

// HMACSecret is the metadata of an HMAC secret, without the secret.
type HMACSecret struct {
	ID         string              `json:"id" example:"sec_3"`
	Name       string              `json:"name"`
	Scope      metering.Scope      `json:"scope"`
	Signatures metering.Signatures `json:"signatures" doc:"Signature versions that the secret accepts"`
	LastFour   string              `json:"last_four"`
	CreatedAt  time.Time           `json:"created_at"`
	CreatedBy  metering.Actor      `json:"created_by" example:"member_3" doc:"Creator of the secret: a member, another credential, or 'operator' for the command line"`
	HandedTo   *metering.Actor     `json:"handed_to" doc:"Member or credential that is responsible for the secret since the removal of a member"`
	ExpiresAt  *time.Time          `json:"expires_at"`
	RevokedAt  *time.Time          `json:"revoked_at"`

	LastUsedAt    *time.Time `json:"last_used_at"`
	Successor     *string    `json:"successor_id" doc:"Id of the secret that replaces this secret. The replaced secret stays valid until its expires_at, unless it is revoked earlier"`
	OldLastUsedAt *time.Time `json:"old_last_used_at" doc:"Last use of the replaced secret, while both secrets are valid"`
}

func showHMACSecret(c metering.Credential) HMACSecret {
	return HMACSecret{
		ID: c.ID.String(), Name: c.Name, Scope: c.Scope, Signatures: c.Signatures, LastFour: c.LastFour,
		CreatedAt: c.CreatedAt.UTC(), CreatedBy: c.CreatedBy, HandedTo: c.HandedTo, ExpiresAt: c.ExpiresAt, RevokedAt: c.RevokedAt, LastUsedAt: c.LastUsedAt,
		Successor: successorOf(c), OldLastUsedAt: c.OldLastUsedAt,
	}
}

type createHMACSecretInput struct {
	Repeatable
	Body struct {
		NewCredential

		Signatures metering.Signatures `json:"signatures,omitempty" default:"v1_and_v2" doc:"Accepted signature versions. Recommended: 'v2', which covers the method and the path"`
	}
}

type createHMACSecretOutput struct{ Body createdHMACSecret }

type createdHMACSecret struct {
	Secret string `json:"secret" doc:"The complete secret, shown only in this response. The bytes of the secret are the signing key"`
	HMACSecret
}

func (s *server) registerHMACSecrets() {
	huma.Register(s.api, created(post("create-hmac-secret", "/v1/hmac-secrets", KeysManage, "Create an HMAC secret",
		"The secret is shown only in this response.\n\n"+
			"- A tenant has at most two valid secrets. Beyond that the request returns 409.\n"+
			"- With `signatures` set to `v2`, the secret cannot sign requests in v1.")), s.createHMACSecret)
	huma.Register(s.api, get("list-hmac-secrets", "/v1/hmac-secrets", KeysManage, "List HMAC secrets",
		"Secrets are listed newest first, including revoked and expired secrets. The secrets themselves are not shown."), s.listHMACSecrets)
	huma.Register(s.api, post("revoke-hmac-secret", "/v1/hmac-secrets/{id}/revoke", KeysManage, "Revoke an HMAC secret",
		"Signatures by the secret are invalid on every replica as soon as the response is sent. Revoking the secret again changes nothing."), s.revokeHMACSecret)
}

func (s *server) createHMACSecret(ctx context.Context, in *createHMACSecretInput) (*createHMACSecretOutput, error) {
	who := principalOf(ctx)
	if err := in.Body.check(who, s.Now()); err != nil {
		return nil, err
	}
	secret, record, err := s.newSecret(who.Tenant.ID)
	if err != nil {
		return nil, err
	}
	record.Name, record.Scope, record.ExpiresAt = in.Body.Name, in.Body.Scope, in.Body.ExpiresAt.pointer()
	record.Signatures = in.Body.Signatures
	shown, repeated, err := once(ctx, s, in.Repeatable, "create-hmac-secret", in.Body, func(within db.Creators) (HMACSecret, error) {
		made, err := within.Credentials.Create(ctx, who.Tenant.ID, who.Actor, metering.HMACSecretCredential, record, s.Now())
		return showHMACSecret(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, secretNotRepeated(shown.ID, shown.LastFour)
	}
	return &createHMACSecretOutput{createdHMACSecret{secret, shown}}, nil
}

// newSecret returns a new secret and its record to store.
func (s *server) newSecret(tenant metering.TenantID) (secret string, record metering.Credential, err error) {
	secret = secretPrefix + randomText(secretLength)
	sealed, err := s.Keyring.Seal(tenant, seal.SigningSecret, []byte(secret))
	return secret, metering.Credential{Sealed: sealed, LastFour: secret[len(secret)-4:]}, err
}

type listHMACSecretsOutput struct{ Body List[HMACSecret] }

func (s *server) listHMACSecrets(ctx context.Context, in *struct{ Paging }) (*listHMACSecretsOutput, error) {
	list, err := listCredentials(ctx, s, metering.HMACSecretCredential, in.Paging, showHMACSecret)
	return &listHMACSecretsOutput{list}, err
}

type revokeHMACSecretInput struct {
	ID string `path:"id" example:"sec_3"`
}

type revokeHMACSecretOutput revokedCredential

func (s *server) revokeHMACSecret(ctx context.Context, in *revokeHMACSecretInput) (*revokeHMACSecretOutput, error) {
	out, err := s.revokeCredential(ctx, metering.HMACSecretCredential, in.ID)
	return (*revokeHMACSecretOutput)(out), err
}
