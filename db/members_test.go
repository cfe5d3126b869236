package db_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// mail returns an e-mail address that no other test uses.
func mail(t *testing.T, name string) string {
	return name + "@" + strings.ToLower(t.Name()) + ".example.com"
}

func member(t *testing.T, store *db.DB, tenant metering.TenantID, email string, role metering.Role) metering.Member {
	t.Helper()
	m, err := store.Members.Create(t.Context(), tenant, metering.Operator, metering.Member{Email: email, Role: role}, []byte("a password"))
	require.NoError(t, err)
	return m
}

func session(t *testing.T, store *db.DB, m metering.Member) access.SessionName {
	t.Helper()
	s, err := store.Sessions.Begin(t.Context(), m, nil, clock.Now().Add(time.Hour), clock.Now())
	require.NoError(t, err)
	return access.SessionName{Tenant: m.TenantID, Member: m.ID, Session: s.ID}
}

// live reports, for each session, whether it is live.
func live(t *testing.T, store *db.DB, names ...access.SessionName) (live []bool) {
	t.Helper()
	found, err := store.Sessions.Find(t.Context(), names)
	require.NoError(t, err)
	for _, name := range names {
		in := found[name]
		live = append(live, in != nil && in.Session.Live(clock.Now()))
	}
	return live
}

// memberships returns the person's memberships in the tenant, or in all tenants if tenant is 0.
func memberships(t *testing.T, store *db.DB, tenant metering.TenantID, email, hash string) (members []metering.Member) {
	t.Helper()
	found, err := store.People.Memberships(t.Context(), tenant, email, []byte(hash))
	require.NoError(t, err)
	for _, m := range found {
		require.Equal(t, m.Tenant.ID, m.Member.TenantID)
		members = append(members, m.Member)
	}
	return members
}

func audited(t *testing.T, tenant metering.TenantID) (actions []string) {
	t.Helper()
	rows, err := dbtest.Conn(t).Query(t.Context(), `select actor || ' ' || action || ' ' || resource from audit_log where tenant_id = $1 order by id`, tenant)
	require.NoError(t, err)
	actions, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return actions
}

func TestTenantCannotAccessMembersOfAnotherTenant(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	ours, theirs := dbtest.Tenant(t, store), dbtest.Tenant(t, store)
	ada := member(t, store, ours.ID, mail(t, "ada"), metering.RoleAdmin)
	bob := member(t, store, theirs.ID, mail(t, "bob"), metering.RoleAdmin)

	listed, err := dbtest.Items(store.Members.List(t.Context(), ours.ID, 0, 10))
	require.NoError(t, err)
	require.Equal(t, []metering.Member{ada}, listed)
	_, err = store.Members.Update(t.Context(), ours.ID, metering.Operator, bob.ID, access.MemberChange{})
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	_, err = store.Members.MakeOwner(t.Context(), ours.ID, metering.Operator, bob.ID)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(store.Members.Remove(t.Context(), ours.ID, metering.Operator, bob.ID, "", clock.Now())))

	name := session(t, store, bob)
	for _, foreign := range []access.SessionName{
		{Tenant: ours.ID, Member: bob.ID, Session: name.Session}, {Tenant: ours.ID, Member: ada.ID, Session: name.Session},
		{Tenant: theirs.ID, Member: ada.ID, Session: name.Session}, {Tenant: theirs.ID, Member: bob.ID, Session: uuid.New()},
	} {
		require.Equal(t, []bool{false, true}, live(t, store, foreign, name))
	}
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(store.Sessions.End(t.Context(), metering.Operator, access.SessionName{Tenant: ours.ID, Member: bob.ID, Session: name.Session})))
	require.Equal(t, []bool{true}, live(t, store, name))
}

func TestTenantHasOneMemberPerEmailIgnoringCase(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	one, other := dbtest.Tenant(t, store), dbtest.Tenant(t, store)
	email := uuid.NewString() + "@example.com"
	first := member(t, store, one.ID, email, metering.RoleViewer)
	_, err := store.Members.Create(t.Context(), one.ID, metering.Operator, metering.Member{Email: strings.ToUpper(email), Role: metering.RoleAdmin}, nil)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))

	second := member(t, store, other.ID, strings.ToUpper(email), metering.RoleViewer)
	require.Equal(t, first.PersonID, second.PersonID, "members with the same e-mail and password are one person")
	require.Equal(t, []metering.Member{first, second}, memberships(t, store, 0, email, "a password"))
	require.Equal(t, []metering.Member{second}, memberships(t, store, other.ID, email, "a password"))
	require.Empty(t, memberships(t, store, 0, email, "another"))

	require.NoError(t, store.Members.Remove(t.Context(), one.ID, metering.Operator, first.ID, "", clock.Now()))
	require.NotEqual(t, first.ID, member(t, store, one.ID, email, metering.RoleViewer).ID)
}

func TestATenantKeepsExactlyOneOwner(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store)
	owner := member(t, store, tenant.ID, mail(t, "owner"), metering.RoleOwner)
	heirs := []metering.Member{
		member(t, store, tenant.ID, mail(t, "a"), metering.RoleAdmin), member(t, store, tenant.ID, mail(t, "b"), metering.RoleViewer),
	}
	_, err := store.Members.Create(t.Context(), tenant.ID, metering.Operator, metering.Member{Email: mail(t, "c"), Role: metering.RoleOwner}, nil)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(store.Members.Remove(t.Context(), tenant.ID, metering.Operator, owner.ID, "", clock.Now())))
	viewer, ownerRole := metering.RoleViewer, metering.RoleOwner
	_, err = store.Members.Update(t.Context(), tenant.ID, metering.Operator, owner.ID, access.MemberChange{Role: &viewer})
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	_, err = store.Members.Update(t.Context(), tenant.ID, metering.Operator, heirs[0].ID, access.MemberChange{Role: &ownerRole})
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))

	var handovers sync.WaitGroup
	for i := range 20 {
		handovers.Go(func() {
			_, err := store.Members.MakeOwner(t.Context(), tenant.ID, metering.Operator, heirs[i%2].ID)
			require.NoError(t, err)
		})
	}
	handovers.Wait()
	all, err := dbtest.Items(store.Members.List(t.Context(), tenant.ID, 0, 10))
	require.NoError(t, err)
	roles := map[metering.Role]int{}
	for _, m := range all {
		roles[m.Role]++
	}
	require.Equal(t, map[metering.Role]int{metering.RoleOwner: 1, metering.RoleAdmin: 2}, roles)
}

func TestSignInFailsAfterRemovalOrPasswordChangeOfMember(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store)
	ada := member(t, store, tenant.ID, mail(t, "ada"), metering.RoleViewer)
	before, kept := session(t, store, ada), session(t, store, ada)
	require.NoError(t, store.Members.SetPassword(t.Context(), ada, []byte("next"), kept.Session))
	require.Equal(t, []bool{false, true}, live(t, store, before, kept))
	_, err := store.Sessions.Begin(t.Context(), ada, nil, clock.Now().Add(time.Hour), clock.Now())
	require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(err))
	err = store.Members.SetPassword(t.Context(), ada, []byte("another"), kept.Session)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))

	ada = memberships(t, store, tenant.ID, ada.Email, "next")[0]
	require.NoError(t, store.Members.Remove(t.Context(), tenant.ID, "member_1", ada.ID, "", clock.Now()))
	require.Equal(t, []bool{false}, live(t, store, kept))
	_, err = store.Sessions.Begin(t.Context(), ada, nil, clock.Now().Add(time.Hour), clock.Now())
	require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(err))
}

func TestSignInFailsIfMemberIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store)
	ada := member(t, store, tenant.ID, mail(t, "ada"), metering.RoleViewer)
	conn, err := pgx.Connect(t.Context(), dbtest.URL(t))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `update members set removed_at = $3 where tenant_id = $1 and id = $2`, tenant.ID, ada.ID, clock.Now())
	require.NoError(t, err)
	begun := make(chan error, 1)
	go func() {
		_, err := store.Sessions.Begin(t.Context(), ada, nil, clock.Now().Add(time.Hour), clock.Now())
		begun <- err
	}()
	awaitBlocked(t, tx)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(<-begun))
}

func TestEndAllEndsOnlySessionsOfTheMember(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store)
	ada, bob := member(t, store, tenant.ID, mail(t, "ada"), metering.RoleViewer), member(t, store, tenant.ID, mail(t, "bob"), metering.RoleViewer)
	first, second, others := session(t, store, ada), session(t, store, ada), session(t, store, bob)
	require.NoError(t, store.Sessions.EndAll(t.Context(), tenant.ID, metering.Actor(ada.ID.String()), ada.ID))
	require.Equal(t, []bool{false, false, true}, live(t, store, first, second, others))
}

func TestOIDCSignInStateIsUsedOnce(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	ours, theirs := dbtest.Tenant(t, store), dbtest.Tenant(t, store)
	for _, tenant := range []metering.TenantID{ours.ID, theirs.ID} {
		_, err := store.OIDC.Save(t.Context(), tenant, metering.Operator, metering.OIDC{Issuer: "https://issuer.example.com", ClientID: tenant.String()})
		require.NoError(t, err)
	}
	in := metering.SignIn{TenantID: ours.ID, StateHash: []byte(uuid.NewString()), ExpiresAt: metering.Instant(clock.Now().Add(time.Minute))}
	require.NoError(t, store.OIDC.Begin(t.Context(), in, clock.Now()))
	taken, err := store.OIDC.Take(t.Context(), in.StateHash)
	require.NoError(t, err)
	require.Equal(t, in, taken)
	_, err = store.OIDC.Take(t.Context(), in.StateHash)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))

	require.NoError(t, store.OIDC.Begin(t.Context(), in, clock.Now()))
	require.NoError(t, store.OIDC.Delete(t.Context(), ours.ID, metering.Operator))
	_, err = store.OIDC.Take(t.Context(), in.StateHash)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err), "the issuer is gone, and with it the sign-in")
	_, err = store.OIDC.Get(t.Context(), ours.ID)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	kept, err := store.OIDC.Get(t.Context(), theirs.ID)
	require.NoError(t, err)
	require.Equal(t, theirs.ID.String(), kept.ClientID)
}

func TestMemberAndSessionChangesAreAudited(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store)
	ada := member(t, store, tenant.ID, mail(t, "ada"), metering.RoleViewer)
	actor := metering.Actor(ada.ID.String())
	s := session(t, store, ada)
	require.NoError(t, store.Sessions.End(t.Context(), actor, s))
	_, err := store.Members.Update(t.Context(), tenant.ID, "key_9", ada.ID, access.MemberChange{})
	require.NoError(t, err)
	require.NoError(t, store.Members.Remove(t.Context(), tenant.ID, "key_9", ada.ID, "", clock.Now()))
	require.Equal(t, []string{
		"operator tenant.create " + tenant.ID.String(), "operator member.create " + ada.ID.String(),
		ada.ID.String() + " session.begin " + s.Session.String(), ada.ID.String() + " session.end " + s.Session.String(),
		"key_9 member.update " + ada.ID.String(), "key_9 member.remove " + ada.ID.String(),
	}, audited(t, tenant.ID))
}

// TestExpiredSessionsAndInvitationsAreDeleted deletes with the role of the worker. A sign-in at the issuer that would
// accept a deleted invitation is deleted too.
func TestExpiredSessionsAndInvitationsAreDeleted(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	worker := dbtest.OpenAsWorker(t, address)
	tenant, now := dbtest.Tenant(t, store).ID, clock.Now()
	_, err := store.OIDC.Save(t.Context(), tenant, metering.Operator, metering.OIDC{Issuer: "https://issuer.example.com", ClientID: "odometer"})
	require.NoError(t, err)
	ada := member(t, store, tenant, mail(t, "ada"), metering.RoleAdmin)
	var sessions []access.SessionName
	var invited []metering.Invitation
	var signIns [][]byte
	for i, expired := range []time.Duration{3 * time.Hour, 2 * time.Hour, 2 * time.Hour, 0} {
		s, err := store.Sessions.Begin(t.Context(), ada, nil, now.Add(-expired), now.AddDate(0, 0, -1))
		require.NoError(t, err)
		sessions = append(sessions, access.SessionName{Tenant: tenant, Member: ada.ID, Session: s.ID})
		name := string(rune('a' + i))
		invitation, err := store.Invitations.Create(t.Context(), tenant, metering.Operator, metering.Invitation{Email: mail(t, name), Role: metering.RoleViewer}, []byte(name), now.Add(-expired-metering.InvitationLasts))
		require.NoError(t, err)
		invited = append(invited, invitation)
		signIns = append(signIns, []byte(uuid.NewString()))
		require.NoError(t, store.OIDC.Begin(t.Context(), metering.SignIn{TenantID: tenant, StateHash: signIns[i], InvitationID: &invitation.ID, ExpiresAt: now.Add(time.Hour)}, now))
	}
	for _, want := range []int64{2, 1, 0} {
		for name, sweep := range map[string]func(context.Context, time.Time, int) (int64, error){"sessions": worker.Sessions.Sweep, "invitations": worker.Invitations.Sweep} {
			deleted, err := sweep(t.Context(), now.Add(-time.Hour), 2)
			require.NoError(t, err, name)
			require.Equal(t, want, deleted, name)
		}
	}
	found, err := store.Sessions.Find(t.Context(), sessions)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found, sessions[3])
	_, err = store.Invitations.Get(t.Context(), tenant, invited[3].ID, now.Add(-time.Second))
	require.NoError(t, err)
	for i, state := range signIns {
		_, err := store.OIDC.Take(t.Context(), state)
		require.Equal(t, i == 3, err == nil, "%d: %v", i, err)
	}
}
