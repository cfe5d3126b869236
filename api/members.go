package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/metering"
)

type member struct {
	ID          string        `json:"id" example:"member_12"`
	TenantID    string        `json:"tenant_id" example:"ten_1"`
	Email       string        `json:"email"`
	Name        string        `json:"name"`
	Role        metering.Role `json:"role"`
	HasPassword bool          `json:"has_password" doc:"Whether the member signs in with a password. If false, the member signs in only at the tenant's OIDC issuer"`
	CreatedAt   time.Time     `json:"created_at"`
}

func showMember(m metering.Member) member {
	return member{
		ID: m.ID.String(), TenantID: m.TenantID.String(), Email: m.Email, Name: m.Name, Role: m.Role,
		HasPassword: m.PersonID != nil, CreatedAt: m.CreatedAt.UTC(),
	}
}

type memberOutput struct{ Body member }

type listMembersOutput struct{ Body List[member] }

func (s *server) registerMembers() {
	huma.Register(s.api, get("list-members", "/v1/tenant/members", TenantManage, "List members",
		"Members are listed in the order in which they joined."), s.listMembers)
	huma.Register(s.api, patch("update-member", "/v1/tenant/members/{id}", TenantManage, "Update a member's name or role",
		"You cannot grant a role with more permissions than yours. Only `make-owner` changes the owner."), s.updateMember)
	huma.Register(s.api, remove("remove-member", "/v1/tenant/members/{id}", TenantManage, "Remove a member",
		"If the member created credentials that are still valid, `keys` must be `revoke` or `hand_over`. Without `keys`, the request returns 409."), s.removeMember)
	huma.Register(s.api, post("make-owner", "/v1/tenant/members/{id}/make-owner", TenantManage, "Make a member the owner",
		"The previous owner becomes an admin."), s.makeOwner)
}

func (s *server) listMembers(ctx context.Context, in *struct{ Paging }) (*listMembersOutput, error) {
	var after metering.MemberID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	members, err := s.Store.Members.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize)
	if err != nil {
		return nil, err
	}
	cursorOf := func(m metering.Member) metering.MemberID { return m.ID }
	return &listMembersOutput{listOf(ctx, s, members, showMember, cursorOf)}, nil
}

// requireGrantable returns an error if the role has a permission that the caller lacks.
func requireGrantable(who Principal, role metering.Role) error {
	if mayGrant(who, Principal{Role: role}) {
		return nil
	}
	return metering.Errorf(metering.CodeForbidden, "the role must not have more permissions than the caller")
}

// MemberPath identifies a member in a path.
type MemberPath struct {
	ID string `path:"id" example:"member_12"`
}

func (in MemberPath) member() (metering.MemberID, error) {
	id, ok := metering.ParseMemberID(in.ID)
	if !ok {
		return 0, metering.Errorf(metering.CodeNotFound, "there is no such member")
	}
	return id, nil
}

type updateMemberInput struct {
	MemberPath
	Body struct {
		Name *string    `json:"name,omitempty" maxLength:"255"`
		Role *givenRole `json:"role,omitempty" doc:"New role. Use 'POST /v1/tenant/members/{id}/make-owner' to change the owner"`
	}
}

func (s *server) updateMember(ctx context.Context, in *updateMemberInput) (*memberOutput, error) {
	who := principalOf(ctx)
	id, err := in.member()
	if err != nil {
		return nil, err
	}
	if in.Body.Role != nil {
		if err := requireGrantable(who, metering.Role(*in.Body.Role)); err != nil {
			return nil, err
		}
	}
	if in.Body.Name != nil {
		if err := metering.ValidName(*in.Body.Name); err != nil {
			return nil, err
		}
	}
	m, err := s.Store.Members.Update(ctx, who.Tenant.ID, who.Actor, id, access.MemberChange{Name: in.Body.Name, Role: (*metering.Role)(in.Body.Role)})
	if err != nil {
		return nil, err
	}
	return &memberOutput{showMember(m)}, nil
}

type removeMemberOutput struct {
	Body struct {
		ID      string `json:"id"`
		Removed bool   `json:"removed"`
	}
}

type removeMemberInput struct {
	MemberPath
	Keys metering.KeysChoice `query:"keys" doc:"Treatment of valid API keys and HMAC secrets that the member created, directly or through other such credentials. Required if there are such credentials. 'revoke' revokes the credentials. 'hand_over' makes you responsible for the credentials"`
}

func (s *server) removeMember(ctx context.Context, in *removeMemberInput) (*removeMemberOutput, error) {
	who := principalOf(ctx)
	id, err := in.member()
	if err != nil {
		return nil, err
	}
	if err := s.Store.Members.Remove(ctx, who.Tenant.ID, who.Actor, id, in.Keys, s.Now()); err != nil {
		return nil, err
	}
	out := new(removeMemberOutput)
	out.Body.ID, out.Body.Removed = id.String(), true
	return out, nil
}

func (s *server) makeOwner(ctx context.Context, in *MemberPath) (*memberOutput, error) {
	who := principalOf(ctx)
	id, err := in.member()
	if err != nil {
		return nil, err
	}
	if err := requireGrantable(who, metering.RoleOwner); err != nil {
		return nil, err
	}
	m, err := s.Store.Members.MakeOwner(ctx, who.Tenant.ID, who.Actor, id)
	if err != nil {
		return nil, err
	}
	return &memberOutput{showMember(m)}, nil
}
