package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestAPIKeyHasPrefixOfItsScopeAndWorks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for scope, prefix := range map[metering.Scope]string{
		metering.ScopeAdmin: "svc_adm_", metering.ScopeReadWrite: "svc_rw_",
		metering.ScopeReadOnly: "svc_ro_", metering.ScopeIngestOnly: "svc_ink_",
	} {
		key := b.newKey(t, scope)
		require.Regexp(t, "^"+prefix+"[0-9A-Za-z]{32}$", key)
		status := b.send(t, "GET", "/v1/meters", "", "Authorization: Bearer "+key).status
		if scope == metering.ScopeIngestOnly {
			require.Equal(t, http.StatusForbidden, status)
		} else {
			require.Equal(t, http.StatusOK, status)
		}
	}
}

func TestRequestWithoutValidAPIKeyReturns401(t *testing.T) {
	t.Parallel()
	b := setup(t)
	altered := strings.ToUpper(b.key[len(b.key)-1:])
	if altered == b.key[len(b.key)-1:] {
		altered = "x"
	}
	for _, header := range []string{
		"", "Bearer", "Bearer ", "Basic " + b.key, b.key, "Bearer " + b.key[:len(b.key)-1] + altered,
		"Bearer " + b.key + "x", "Bearer svc_adm_" + strings.Repeat("é", 16), "Bearer " + strings.Repeat("a", 4000),
		"HMAC v1:c2lnbmF0dXJl", "Bearer svc_xyz_" + b.key[len("svc_adm_"):],
	} {
		a := b.send(t, "GET", "/v1/customers", "", "Authorization: "+header)
		a.problem(t, 401, "unauthorized")
		require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
	}
}

func TestRevokedAPIKeyIsRefusedImmediately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		made, err := b.client.CreateApiKeyWithResponse(t.Context(), nil, client.CreateAPIKey{Name: "short lived", Scope: "read_only"})
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, made.StatusCode(), string(made.Body))
		key := made.JSON201.Key
		// Concurrent requests keep lookups in progress. The test therefore fails if a request after the revocation
		// shares an earlier lookup.
		var others sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			others.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						b.send(t, "GET", "/v1/customers", "", "Authorization: Bearer "+key)
					}
				}
			})
		}
		require.Equal(t, 200, b.send(t, "GET", "/v1/customers", "", "Authorization: Bearer "+key).status)
		revoked, err := b.client.RevokeApiKeyWithResponse(t.Context(), made.JSON201.Id)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, revoked.StatusCode())
		status := b.send(t, "GET", "/v1/customers", "", "Authorization: Bearer "+key).status
		close(stop)
		others.Wait()
		require.Equal(t, 401, status)
	}
}

func TestAPIKeyIsShownOnlyWhenCreated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.send(t, "POST", "/v1/api-keys", `{"name":"CI","scope":"ingest_only"}`)
	require.Equal(t, 201, made.status, made.body)
	listed, err := b.client.ListApiKeysWithResponse(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, listed.JSON200.Data, 2)
	newest := listed.JSON200.Data[0]
	require.Equal(t, "svc_ink_", newest.Prefix)
	require.Contains(t, made.body, newest.LastFour+`"`)
	require.NotContains(t, string(listed.Body), `"key"`)
}

func TestAnExpiredKeyIsInvalid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	expires := b.now().Add(1e9 * 3600)
	made, err := b.client.CreateApiKeyWithResponse(t.Context(), nil, client.CreateAPIKey{Name: "an hour", Scope: "admin", ExpiresAt: &expires})
	require.NoError(t, err)
	header := "Authorization: Bearer " + made.JSON201.Key
	require.Equal(t, 200, b.send(t, "GET", "/v1/customers", "", header).status)
	b.ahead.Store(1e9 * 3601)
	b.send(t, "GET", "/v1/customers", "", header).problem(t, 401, "unauthorized")
}

func TestResourcesOfAnotherTenantAreNotFound(t *testing.T) {
	t.Parallel()
	ours, theirs := setup(t), setup(t)
	theirs.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	theirs.send(t, "POST", "/v1/meters", `{"slug":"calls","event_type":"call"}`)
	for _, path := range []string{
		"/v1/customers/acme", "/v1/customers/by-external-id?external_id=acme", "/v1/meters/calls", "/v1/meters/calls/pricing",
		"/v1/usage?meter=calls&customer=acme", "/v1/usage/summary?customer=acme", "/v1/usage/total?customer=acme",
		"/v1/usage/export?customer=acme", "/v1/usage/comparison?customer=acme&meter=calls", "/v1/billing/preview?customer=acme",
	} {
		require.Equal(t, 200, theirs.send(t, "GET", path, "").status, path)
		ours.send(t, "GET", path, "").problem(t, 404, "not_found")
	}
	keys, err := theirs.client.ListApiKeysWithResponse(t.Context(), nil)
	require.NoError(t, err)
	ours.send(t, "POST", "/v1/api-keys/"+keys.JSON200.Data[0].Id+"/revoke", "").problem(t, 404, "not_found")
	require.Equal(t, 200, theirs.send(t, "GET", "/v1/meters", "").status)
}

func TestAPIKeyLastUsedTimeIsUpdatedOncePerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	began := b.now().Truncate(time.Second)
	used := func() *time.Time {
		var page struct {
			Data []struct {
				LastUsedAt *time.Time `json:"last_used_at"`
			} `json:"data"`
		}
		a := b.send(t, "GET", "/v1/api-keys", "")
		require.NoError(t, json.Unmarshal([]byte(a.body), &page))
		return page.Data[0].LastUsedAt
	}
	var first *time.Time
	dbtest.Eventually(t, func() error {
		if first = used(); first == nil {
			return fmt.Errorf("it was never used")
		}
		return nil
	})
	require.WithinRange(t, *first, began, b.now())
	b.ahead.Store(int64(50 * time.Second))
	for range 20 {
		require.Equal(t, first, used())
	}
	b.ahead.Store(int64(2 * time.Minute))
	dbtest.Eventually(t, func() error {
		if again := used(); !again.After(*first) {
			return fmt.Errorf("it was last used at %s", again)
		}
		return nil
	})
}
