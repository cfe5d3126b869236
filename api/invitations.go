package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// Invitation is an invitation without its token.
type Invitation struct {
	ID        string         `json:"id" example:"inv_5"`
	TenantID  string         `json:"tenant_id" example:"ten_1"`
	MemberID  *string        `json:"member_id" example:"member_12" doc:"Id of the member to reset. Null if accepting the invitation creates a member"`
	Email     string         `json:"email"`
	Name      string         `json:"name"`
	Role      metering.Role  `json:"role"`
	LastFour  string         `json:"token_last_four"`
	CreatedAt time.Time      `json:"created_at"`
	CreatedBy metering.Actor `json:"created_by" example:"member_3" doc:"Creator of the invitation: a member or a credential"`
	ExpiresAt time.Time      `json:"expires_at" doc:"Time from which the invitation is invalid"`
}

func showInvitation(i metering.Invitation) Invitation {
	shown := Invitation{
		ID: i.ID.String(), TenantID: i.TenantID.String(), Email: i.Email, Name: i.Name, Role: i.Role, LastFour: i.LastFour,
		CreatedAt: i.CreatedAt.UTC(), CreatedBy: i.CreatedBy, ExpiresAt: i.ExpiresAt.UTC(),
	}
	if i.MemberID != nil {
		shown.MemberID = new(i.MemberID.String())
	}
	return shown
}

type createdInvitation struct {
	Token string `json:"token" doc:"Token that accepts the invitation, shown only in this response"`
	URL   string `json:"url" example:"https://odometer.example.com/invitation#…" doc:"Link for the invited person. The token follows the #, so that browsers do not send it to servers"`
	Invitation
}

type createdInvitationOutput struct{ Body createdInvitation }

const invitationPage = "/invitation" // path of the dashboard's page

func (s *server) registerInvitations() {
	huma.Register(s.api, post("find-invitation", "/v1/invitations/find", Public, "Get an invitation by its token",
		"Shows the tenant, the role and the expiry before the invitation is accepted. The token is the credential."), s.findInvitation)
	huma.Register(s.api, post("accept-invitation", "/v1/invitations/accept", Public, "Accept an invitation with a password",
		"Creates the member, or sets the password of the member who is being reset. Signs the member in."), s.acceptInvitation)
	huma.Register(s.api, accepted(post("ask-for-reset", "/v1/password-resets", Public, "Ask for a password reset",
		"Sends a `password_reset.requested` message to the webhooks of every tenant that has a member with this e-mail, at most every ten minutes. The response "+
			"is the same for an unknown e-mail.")), s.askForReset)
	huma.Register(s.api, created(post("create-member", "/v1/tenant/members", TenantManage, "Invite a person to become a member",
		"Returns a token, shown only once. The person becomes a member by accepting the invitation within seven days.\n\n"+
			"- Odometer sends no e-mail. Webhooks for `member.invited` receive a message, so that your service can send the link.\n"+
			"- Creating invitations, renewing invitations and resetting members share one limit: 20 a minute for each tenant.\n"+
			"- A tenant has at most 1,000 members and pending invitations. Beyond that the request returns 409.")), s.createMember)
	huma.Register(s.api, post("reset-member", "/v1/tenant/members/{id}/reset", TenantManage, "Invite a member to set a new password",
		"Nothing changes until the invitation is accepted. Then the member's sessions in this tenant end. The member's password in other tenants does "+
			"not change.\n\n"+
			"- Only the owner can reset the owner.\n"+
			"- Resets count toward the limit of 20 invitations a minute."), s.resetMember)
	huma.Register(s.api, get("list-invitations", "/v1/tenant/invitations", TenantManage, "List pending invitations",
		"Lists invitations that are not accepted, revoked or expired."), s.listInvitations)
	huma.Register(s.api, post("renew-invitation", "/v1/tenant/invitations/{id}/renew", TenantManage, "Create a new token for an invitation",
		"The previous token becomes invalid. The new token is valid for seven days. Renewals count toward the limit of 20 invitations a minute."), s.renewInvitation)
	huma.Register(s.api, remove("revoke-invitation", "/v1/tenant/invitations/{id}", TenantManage, "Revoke an invitation",
		"The link is invalid as soon as the response is sent."), s.revokeInvitation)
}

func (s *server) showCreated(token string, i Invitation) *createdInvitationOutput {
	return &createdInvitationOutput{createdInvitation{token, s.BaseURL + invitationPage + "#" + token, i}}
}

// invitationTokens creates the tokens of invitations and their hashes.
type invitationTokens struct{ key []byte }

func newInvitationTokens(secret []byte) (invitationTokens, error) {
	key, err := derive(secret, "invitation-tokens")
	return invitationTokens{key}, err
}

func (t invitationTokens) make() (token, lastFour string, hash []byte) {
	token = randomText(randomLength)
	return token, token[randomLength-4:], t.hash(token)
}

func (t invitationTokens) hash(token string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte(token))
	return mac.Sum(nil)
}

type createMemberInput struct {
	Repeatable
	Body struct {
		Email string        `json:"email" maxLength:"254" doc:"E-mail of the member, unique in the tenant, case-insensitive. The invitation replaces a pending invitation of the same e-mail"`
		Name  string        `json:"name,omitempty" maxLength:"255"`
		Role  metering.Role `json:"role" doc:"Role of the member. 'owner' is allowed only if the tenant has no owner"`
	}
}

// invitationsOfTenant is the number of invitation tokens that a tenant can create per minute. Each token sends
// a message to up to metering.MaxEndpoints webhooks.
const invitationsOfTenant = 20

// countInvitation counts a new token against invitationsOfTenant. It returns an error if the limit is reached.
func (s *server) countInvitation(ctx context.Context) error {
	if a := s.minutes.take(ctx, "invitations:"+principalOf(ctx).Tenant.ID.String(), invitationsOfTenant); !a.allowed {
		return tooMany(a, "a tenant can create or renew invitations and reset members at most %d times a minute", invitationsOfTenant)
	}
	return nil
}

// createMember invites a person to become a member. It does not read other tenants, so the response does not
// reveal whether the e-mail belongs to a member of another tenant.
func (s *server) createMember(ctx context.Context, in *createMemberInput) (*createdInvitationOutput, error) {
	who := principalOf(ctx)
	if err := requireGrantable(who, in.Body.Role); err != nil {
		return nil, err
	}
	m := metering.Member{Email: in.Body.Email, Name: in.Body.Name}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if err := s.countInvitation(ctx); err != nil {
		return nil, err
	}
	token, lastFour, hash := s.invitations.make()
	invitation := metering.Invitation{Email: in.Body.Email, Name: in.Body.Name, Role: in.Body.Role, LastFour: lastFour}
	shown, repeated, err := once(ctx, s, in.Repeatable, "create-member", in.Body, func(within db.Creators) (Invitation, error) {
		made, err := within.Invitations.Create(ctx, who.Tenant.ID, who.Actor, invitation, hash, s.Now())
		return showInvitation(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, secretNotRepeated(shown.ID, shown.LastFour)
	}
	return s.showCreated(token, shown), nil
}

type listInvitationsOutput struct{ Body List[Invitation] }

func (s *server) listInvitations(ctx context.Context, in *struct{ Paging }) (*listInvitationsOutput, error) {
	var after metering.InvitationID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	invitations, err := s.Store.Invitations.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize, s.Now())
	if err != nil {
		return nil, err
	}
	cursorOf := func(i metering.Invitation) metering.InvitationID { return i.ID }
	return &listInvitationsOutput{listOf(ctx, s, invitations, showInvitation, cursorOf)}, nil
}

// InvitationPath identifies an invitation in a path.
type InvitationPath struct {
	ID string `path:"id" example:"inv_5"`
}

func (in InvitationPath) invitation() (metering.InvitationID, error) {
	id, ok := metering.ParseInvitationID(in.ID)
	if !ok {
		return 0, metering.Errorf(metering.CodeNotFound, "there is no such invitation")
	}
	return id, nil
}

// renewInvitation replaces the token of an invitation and returns the new token. A tenant's service that sends
// invitation links calls this operation, because the message member.invited does not contain the token.
func (s *server) renewInvitation(ctx context.Context, in *InvitationPath) (*createdInvitationOutput, error) {
	who := principalOf(ctx)
	id, err := in.invitation()
	if err != nil {
		return nil, err
	}
	invitation, err := s.Store.Invitations.Get(ctx, who.Tenant.ID, id, s.Now())
	if err != nil {
		return nil, err
	}
	if err := requireGrantable(who, invitation.Role); err != nil {
		return nil, err
	}
	if err := s.countInvitation(ctx); err != nil {
		return nil, err
	}
	token, lastFour, hash := s.invitations.make()
	renewed, err := s.Store.Invitations.Renew(ctx, who.Tenant.ID, who.Actor, id, lastFour, hash, s.Now())
	if err != nil {
		return nil, err
	}
	return s.showCreated(token, showInvitation(renewed)), nil
}

type revokeInvitationOutput struct {
	Body struct {
		ID      string `json:"id"`
		Revoked bool   `json:"revoked"`
	}
}

func (s *server) revokeInvitation(ctx context.Context, in *InvitationPath) (*revokeInvitationOutput, error) {
	who := principalOf(ctx)
	id, err := in.invitation()
	if err != nil {
		return nil, err
	}
	if err := s.Store.Invitations.Revoke(ctx, who.Tenant.ID, who.Actor, id, s.Now()); err != nil {
		return nil, err
	}
	out := new(revokeInvitationOutput)
	out.Body.ID, out.Body.Revoked = id.String(), true
	return out, nil
}

// resetMember invites a member to set a new password, or to sign in at the tenant's OIDC issuer. The reset applies
// to this tenant only.
func (s *server) resetMember(ctx context.Context, in *MemberPath) (*createdInvitationOutput, error) {
	who := principalOf(ctx)
	id, err := in.member()
	if err != nil {
		return nil, err
	}
	if err := s.countInvitation(ctx); err != nil {
		return nil, err
	}
	token, lastFour, hash := s.invitations.make()
	made, err := s.Store.Invitations.OfMember(ctx, who.Tenant.ID, who.Actor, id, lastFour, hash, s.Now())
	if err != nil {
		return nil, err
	}
	return s.showCreated(token, showInvitation(made)), nil
}

type findInvitationInput struct {
	Body struct {
		Token string `json:"token" maxLength:"64" doc:"Token of the invitation"`
	}
}

type foundInvitation struct {
	TenantName string        `json:"tenant_name" doc:"Name of the inviting tenant"`
	Email      string        `json:"email"`
	Name       string        `json:"name"`
	Role       metering.Role `json:"role"`
	Reset      bool          `json:"reset" doc:"Whether the invitation resets an existing member. If false, the invitation creates a member"`
	Issuer     *string       `json:"issuer" doc:"The tenant's OIDC issuer, which can accept the invitation too. Null if there is none"`
	ExpiresAt  time.Time     `json:"expires_at" doc:"Time from which the invitation is invalid"`
}

type findInvitationOutput struct{ Body foundInvitation }

// findInvitation returns the details of an invitation by its token. An unknown token costs one query and returns
// the same error as an expired invitation.
func (s *server) findInvitation(ctx context.Context, in *findInvitationInput) (*findInvitationOutput, error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return nil, err
	}
	i, err := s.Store.Invitations.Find(ctx, s.invitations.hash(in.Body.Token), s.Now())
	if err != nil {
		return nil, err
	}
	tenant, err := s.Store.Tenants.Get(ctx, i.TenantID)
	if err != nil {
		return nil, err
	}
	at, err := s.Store.OIDC.Get(ctx, i.TenantID)
	if err != nil && metering.CodeOf(err) != metering.CodeNotFound {
		return nil, err
	}
	found := foundInvitation{TenantName: tenant.Name, Email: i.Email, Name: i.Name, Role: i.Role, Reset: i.MemberID != nil, ExpiresAt: i.ExpiresAt.UTC()}
	if at.Issuer != "" {
		found.Issuer = &at.Issuer
	}
	return &findInvitationOutput{found}, nil
}

type acceptInvitationInput struct {
	Body struct {
		Token    string `json:"token" maxLength:"64" doc:"The token of the invitation"`
		Password string `json:"password" minLength:"12" maxLength:"256" doc:"12 to 256 characters. If the e-mail already has a password in another tenant, give that password to use one password for both tenants. A different password applies to this tenant only"`
	}
}

// acceptInvitation creates a member. If the invitation is a reset, it sets the password of the existing member
// instead. The password selects the person: if no person with this e-mail has the password, a new person is
// created. The result and the duration do not reveal whether the e-mail is known in other tenants.
func (s *server) acceptInvitation(ctx context.Context, in *acceptInvitationInput) (*signedInOutput, error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return nil, err
	}
	if err := metering.ValidPassword("body.password", in.Body.Password); err != nil {
		return nil, err
	}
	tokenHash := s.invitations.hash(in.Body.Token)
	invitation, err := s.Store.Invitations.Find(ctx, tokenHash, s.Now())
	if err != nil {
		return nil, err
	}
	if err := s.countSignInAs(ctx, invitation.Email); err != nil {
		return nil, err
	}
	address, account := s.addressOf(ctx), s.accountAt(ctx, invitation.Email)
	passwordHash, err := s.passwords.hashAt(ctx, address, account, invitation.Email, in.Body.Password)
	if err != nil {
		return nil, err
	}
	m, err := s.Store.Invitations.Accept(ctx, tokenHash, passwordHash, s.Now())
	if err != nil {
		return nil, err
	}
	s.passwords.succeeded(address, account)
	return s.signedIn(ctx, m)
}

type askForResetInput struct {
	Body struct {
		Email string `json:"email" maxLength:"254"`
	}
}

type resetAskedOutput struct {
	Body struct {
		Accepted bool `json:"accepted" doc:"Always true, even for an unknown e-mail"`
	}
}

// askForReset accepts a request to reset a password. In the background, noteResets searches the members with this
// e-mail and stores the messages to their tenants. Therefore, neither the response nor its duration reveals whether
// such a member exists.
func (s *server) askForReset(ctx context.Context, in *askForResetInput) (*resetAskedOutput, error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return nil, err
	}
	if err := metering.ValidEmail("body.email", in.Body.Email); err != nil {
		return nil, err
	}
	s.resets.board(ctx, in.Body.Email)
	out := new(resetAskedOutput)
	out.Body.Accepted = true
	return out, nil
}

// noteResets stores a message about the requested password reset for each member with one of these e-mails. It skips a
// member for whom a message was stored within the last ten minutes.
func (s *server) noteResets(ctx context.Context, emails []string) (map[string]struct{}, error) {
	err := s.Store.Members.AskForReset(ctx, emails, s.Now())
	if err != nil {
		s.Log.ErrorContext(ctx, "cannot publish requested password resets", "error", err)
	}
	return nil, err
}
