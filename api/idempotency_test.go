package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

// creations maps paths of requests that create a resource to two different valid bodies.
var creations = map[string][2]string{
	"/v1/customers":      {`{"external_id":"acme","metadata":{"a": [1,2]}}`, `{"external_id":"other"}`},
	"/v1/meters":         {`{"slug":"calls","event_type":"call"}`, `{"slug":"calls","event_type":"other"}`},
	"/v1/api-keys":       {`{"name":"k","scope":"read_only"}`, `{"name":"k","scope":"admin"}`},
	"/v1/hmac-secrets":   {`{"name":"k","scope":"read_only"}`, `{"name":"k","scope":"admin"}`},
	"/v1/webhooks":       {someHook, `{"url":"https://example.com/other","event_types":["sync.succeeded"]}`},
	"/v1/tenant/members": {`{"email":"a@example.com","role":"viewer"}`, `{"email":"b@example.com","role":"viewer"}`},
}

// showsSecret maps the paths of creations that show a secret once to the field of the secret.
var showsSecret = map[string]string{"/v1/api-keys": "key", "/v1/hmac-secrets": "secret", "/v1/webhooks": "secret", "/v1/tenant/members": "token"}

// count returns the number of items in the list at the path, or the number of invitations for the path of members.
func (b *bundle) count(t *testing.T, path string) int {
	t.Helper()
	if path == "/v1/tenant/members" {
		path = "/v1/tenant/invitations" // an invited person is not a member yet
	}
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", path, "").body), &list))
	return len(list.Data)
}

func TestRepeatWithSameIdempotencyKeyCreatesNothing(t *testing.T) {
	t.Parallel()
	for path, bodies := range creations {
		t.Run(strings.ReplaceAll(path[1:], "/", " "), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			const key = "Idempotency-Key: once é"
			first := b.send(t, "POST", path, bodies[0], key)
			require.Equal(t, 201, first.status, first.body)
			made := b.count(t, path)
			for _, replica := range []*bundle{b, b.replica(t, func(*api.Deps) {})} {
				again := replica.send(t, "POST", path, " "+bodies[0], key) // the same JSON
				if field, secret := showsSecret[path]; secret {
					p := again.problem(t, 409, "conflict")
					var shown map[string]any
					require.NoError(t, json.Unmarshal([]byte(first.body), &shown))
					require.Contains(t, p.Detail, shown["id"])
					require.Contains(t, p.Detail, shown[field].(string)[len(shown[field].(string))-4:])
					require.NotContains(t, again.body, shown[field])
				} else {
					require.Equal(t, 201, again.status, again.body)
					require.Equal(t, first.body, again.body)
				}
				other := replica.send(t, "POST", path, bodies[1], key).problem(t, 422, "invalid")
				require.Equal(t, "header.Idempotency-Key", other.Errors[0].Location)
			}
			require.Equal(t, made, b.count(t, path))
			b.send(t, "POST", "/v1/customers", `{"external_id":"elsewhere","name":"x"}`, key).problem(t, 422, "invalid")
			setup(t).send(t, "POST", path, bodies[0], key) // the same key of another tenant is another key
		})
	}
}

func TestConcurrentRepeatsCreateOneResource(t *testing.T) {
	t.Parallel()
	for path, bodies := range creations {
		t.Run(strings.ReplaceAll(path[1:], "/", " "), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			before := b.count(t, path)
			answers := make([]answer, 8)
			var group sync.WaitGroup
			for i := range answers {
				group.Go(func() { answers[i] = b.send(t, "POST", path, bodies[0], "Idempotency-Key: k") })
			}
			group.Wait()
			statuses := map[int]int{}
			for _, a := range answers {
				statuses[a.status]++
			}
			want := map[int]int{201: 8}
			if _, secret := showsSecret[path]; secret {
				want = map[int]int{201: 1, 409: 7}
			}
			require.Equal(t, want, statuses)
			require.Equal(t, before+1, b.count(t, path))
		})
	}
}

func TestFailedRequestDoesNotUseUpIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`, "Idempotency-Key: k").problem(t, 409, "conflict")
	require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"other"}`, "Idempotency-Key: k").status)
}

// TestEveryCreationAcceptsIdempotencyKey checks that every POST that creates a resource accepts an Idempotency-Key, and
// that every path of creations is such a POST.
func TestEveryCreationAcceptsIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var document struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string } `json:"parameters"`
			Responses  map[string]json.RawMessage  `json:"responses"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/openapi.json", "").body), &document))
	missing := maps.Clone(creations)
	for path, item := range document.Paths {
		post, ok := item["post"]
		if _, creates := post.Responses["201"]; !ok || !creates || path == "/v1/quotas/reserve" {
			continue // a repeated reservation is recognized by its id
		}
		require.Contains(t, fmt.Sprint(post.Parameters), "Idempotency-Key", path)
		delete(missing, path)
	}
	require.Empty(t, missing)
}

// TestEveryPOSTAcceptsOrRefusesIdempotencyKey checks that every POST with the parameter Idempotency-Key refuses an
// empty key and two keys, and that every other POST refuses any key and has no effect. The test skips provider events
// and operations that need a session.
func TestEveryPOSTAcceptsOrRefusesIdempotencyKey(t *testing.T) {
	t.Parallel()
	document := olderDocument(t)
	b := setup(t)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", hello)
	refused := 0
	for path, item := range document.Paths.Map() {
		if item.Post == nil || item.Post.OperationID == "receive-provider-event" {
			continue
		}
		r := goodRequest("POST", path, item.Post)
		for _, name := range []string{"external_id", "slug", "id", "tenant_id", "period", "meter", "type", "message"} {
			r = r.with("path", name, goodValue(name))
		}
		body := ""
		if item.Post.RequestBody != nil {
			body = goodJSON(item.Post.RequestBody.Value.Content["application/json"].Schema.Value)
		}
		refusal := func(keys ...string) api.Problem {
			t.Helper()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+r.path, strings.NewReader(body))
			require.NoError(t, err)
			request.Header = http.Header{"Authorization": {"Bearer " + b.key}, "Content-Type": {"application/json"}, "Idempotency-Key": keys}
			response, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, 422, response.StatusCode, "%s %s", path, text)
			var p api.Problem
			require.NoError(t, json.Unmarshal(text, &p))
			require.Equal(t, "header.Idempotency-Key", p.Errors[0].Location, path)
			return p
		}
		if item.Post.Parameters.GetByInAndName("header", "Idempotency-Key") != nil {
			require.Equal(t, "must not be empty", refusal("").Errors[0].Message, path)
			require.Equal(t, "must be given once", refusal("a", "b").Errors[0].Message, path)
			continue
		}
		if item.Post.Extensions["x-permission"] == "session:own" {
			continue // needs a session
		}
		for range 2 {
			p := refusal("k")
			require.Contains(t, p.Errors[0].Message, "must be absent", path)
			if strings.HasPrefix(path, "/v1/events") {
				require.Equal(t, "must be absent: give each event an idempotency_key instead", p.Errors[0].Message)
			}
		}
		refused++
	}
	require.Greater(t, refused, 25)
	require.Equal(t, `{"total":2}`, b.total(t, "acme"))
	require.Equal(t, 200, b.send(t, "PUT", "/v1/customers/acme/upsert", `{}`, "Idempotency-Key: k").status, "a PUT is safe to repeat")
}
