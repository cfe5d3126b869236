package api

import (
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
)

// operations returns all operations of the API.
func operations(t *testing.T) []*huma.Operation {
	t.Helper()
	var all []*huma.Operation
	for _, item := range newServer(Deps{}).api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete, item.Head, item.Options, item.Trace} {
			if op != nil {
				all = append(all, op)
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

func TestEveryOperationNamesAPermissionOfTheTable(t *testing.T) {
	t.Parallel()
	named := map[Permission]bool{}
	for _, op := range operations(t) {
		permission, ok := op.Metadata["permission"].(Permission)
		require.True(t, ok, op.OperationID)
		_, listed := permissions[permission]
		require.True(t, listed || permission == Public, "%s asks for %q", op.OperationID, permission)
		require.Equal(t, permission == Public, len(op.Security) == 0, op.OperationID)
		named[permission] = true
	}
	for permission := range permissions {
		require.True(t, named[permission], "no operation asks for %q", permission)
	}
}

func TestOnlyListedOperationsArePublic(t *testing.T) {
	t.Parallel()
	var public []string
	for _, op := range operations(t) {
		if op.Metadata["permission"] == Public {
			public = append(public, op.OperationID)
		}
	}
	require.ElementsMatch(t, []string{"get-health", "get-readiness", "log-in", "find-invitation", "accept-invitation", "accept-invitation-at-issuer", "ask-for-reset", "begin-oidc", "finish-oidc", "receive-provider-event"}, public)
}

func TestOnlyAdminScopeAndOwnerGrantAllPermissions(t *testing.T) {
	t.Parallel()
	for p, grant := range permissions {
		require.Contains(t, grant.scopes, adm, p)
		require.Contains(t, grant.roles, owner, p)
	}
	for scope := range scopePrefixes {
		require.True(t, mayGrant(Principal{Scope: adm}, Principal{Scope: scope}))
		require.True(t, mayGrant(Principal{Scope: scope}, Principal{Scope: scope}))
		require.True(t, mayGrant(Principal{Role: owner}, Principal{Scope: scope}))
	}
	require.False(t, mayGrant(Principal{Scope: rw}, Principal{Scope: adm}))
	require.False(t, mayGrant(Principal{Scope: ink}, Principal{Scope: ro}))
	require.False(t, mayGrant(Principal{Role: admin}, Principal{Scope: adm}), "a key would give an admin the owner's permissions")
	require.True(t, mayGrant(Principal{Scope: adm}, Principal{Role: admin}))
	require.False(t, mayGrant(Principal{Scope: ink}, Principal{Role: viewer}))
}

func TestUnknownPermissionAllowsNoCaller(t *testing.T) {
	t.Parallel()
	for scope := range scopePrefixes {
		require.False(t, Permission("").allows(Principal{Scope: scope}))
	}
	for p := range permissions {
		require.False(t, p.allows(Principal{}), p)
	}
}

func TestFilteringOperationsDescribeFilterParameters(t *testing.T) {
	t.Parallel()
	for _, op := range operations(t) {
		if op.Metadata["filtering"] == true {
			require.Contains(t, op.Description, "filter.", op.OperationID)
		}
	}
}

// TestBillingReadersCanReadResourcesOfAttentionItems checks that callers with BillingRead can also read customers,
// meters and webhooks, because the list of attention entries names them.
func TestBillingReadersCanReadResourcesOfAttentionItems(t *testing.T) {
	t.Parallel()
	for _, p := range []Permission{CustomersRead, MetersRead, HooksRead} {
		for _, role := range permissions[BillingRead].roles {
			require.True(t, p.allows(Principal{Role: role}), "%s %s", p, role)
		}
		for _, scope := range permissions[BillingRead].scopes {
			require.True(t, p.allows(Principal{Scope: scope}), "%s %s", p, scope)
		}
	}
}
