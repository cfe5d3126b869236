package api_test

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

// chosenSegments contains the path parameters for names that callers choose.
var chosenSegments = []string{"{external_id}", "{slug}", "{meter}"}

// operationPaths returns the methods of each path of the document.
func operationPaths(t *testing.T) map[string][]string {
	t.Helper()
	v31, _, err := documents()
	require.NoError(t, err)
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(v31, &document))
	methods := make(map[string][]string)
	for path, item := range document.Paths {
		for method := range item {
			methods[path] = append(methods[path], strings.ToUpper(method))
		}
	}
	require.NotEmpty(t, methods)
	return methods
}

// shadowingSegment returns the segment of a fixed path that takes the place of a caller's name in another path. For
// example, by-id would hide a customer with the external ID "by-id". It returns "" if the paths do not collide.
func shadowingSegment(fixed, path string) (segment string) {
	theirs, ours := strings.Split(fixed, "/"), strings.Split(path, "/")
	if len(theirs) != len(ours) {
		return ""
	}
	for i := range ours {
		switch {
		case theirs[i] == ours[i], strings.HasPrefix(theirs[i], "{"):
		case slices.Contains(chosenSegments, ours[i]):
			segment = theirs[i]
		default:
			return ""
		}
	}
	return segment
}

func TestFixedPathSegmentsHideOnlyTwoExternalIDs(t *testing.T) {
	t.Parallel()
	paths := operationPaths(t)
	var hidden []string
	for path, methods := range paths {
		for fixed, others := range paths {
			segment := shadowingSegment(fixed, path)
			if segment != "" && slices.ContainsFunc(methods, func(method string) bool { return slices.Contains(others, method) }) {
				hidden = append(hidden, path+" "+segment)
			}
		}
	}
	slices.Sort(hidden)
	// Customers with these two names are read at by-external-id, as TestEveryExternalIDWorksInEveryCustomerPath checks.
	require.Equal(t, []string{"/v1/customers/{external_id} by-external-id", "/v1/customers/{external_id} by-id"}, hidden)
}

func TestEveryExternalIDWorksInEveryCustomerPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := []string{".", "..", "a/b", "/", "a%2Fb", "%", "?external_id=x", "#", "a b", "+", "é", "\"'<&>", "by-external-id"}
	paths := operationPaths(t)
	for path := range paths {
		for _, segment := range strings.Split(path, "/") {
			if segment != "" && !strings.HasPrefix(segment, "{") && !slices.Contains(names, segment) {
				names = append(names, segment)
			}
		}
	}
	bodies := func(name string) map[string]string {
		quoted, err := json.Marshal(name)
		require.NoError(t, err)
		return map[string]string{
			"GET /v1/customers/{external_id}": "", "PUT /v1/customers/{external_id}/upsert": `{"name":"N","external_id":` + string(quoted) + `}`,
			"GET /v1/customers/{external_id}/entitlements": "",
			"GET /v1/customers/{external_id}/plan":         "", "PUT /v1/customers/{external_id}/plan": `{"plan":null}`,
			"POST /v1/customers/{external_id}/archive": "", "POST /v1/customers/{external_id}/unarchive": "",
			"POST /v1/customers/{external_id}/erase": `{"confirm":` + string(quoted) + `,"reason":"asked"}`,
		}
	}
	var operations []string
	for path, methods := range paths {
		for _, method := range methods {
			// TestCustomerPricesAreReachedByEveryExternalID covers the paths with a meter.
			if strings.Contains(path, "{external_id}") && !strings.Contains(path, "{meter}") {
				operations = append(operations, method+" "+path)
			}
		}
	}
	slices.SortFunc(operations, func(a, b string) int { // erasing comes last
		return cmp.Compare(strings.Index(a, "/erase"), strings.Index(b, "/erase"))
	})
	for _, name := range names {
		made := b.send(t, "POST", "/v1/customers", strings.Replace(bodies(name)["PUT /v1/customers/{external_id}/upsert"], `"N"`, `"M"`, 1))
		require.Equal(t, 201, made.status, "%s: %s", name, made.body)
		var customer struct {
			ID         string `json:"id"`
			ExternalID string `json:"external_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(made.body), &customer))
		require.Equal(t, name, customer.ExternalID)
		for _, operation := range operations {
			body, known := bodies(name)[operation]
			require.True(t, known, "%s has no body in this test", operation)
			method, path, _ := strings.Cut(operation, " ")
			path = strings.Replace(path, "{external_id}", "by-external-id", 1) + "?external_id=" + url.QueryEscape(name)
			answer := b.send(t, method, path, body)
			require.Contains(t, []int{200, 202}, answer.status, "%s of %s: %s", operation, name, answer.body)
			if !strings.HasSuffix(operation, "/plan") && !strings.HasSuffix(operation, "/entitlements") {
				require.Contains(t, answer.body, `"id":"`+customer.ID+`"`, "%s of %s", operation, name)
			}
		}
		require.Contains(t, b.send(t, "GET", "/v1/customers/by-id?id="+customer.ID, "").body, `"erased-`, "%s: the last operation was its own", name)
	}
}

func TestCustomerIsNamedByPathOrQueryNotBoth(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	p := b.send(t, "GET", "/v1/customers/acme/plan?external_id=acme", "").problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "query.external_id", Message: "must be absent unless the path contains by-external-id"}}, p.Errors)
	for _, path := range []string{"/v1/customers/by-external-id/archive", "/v1/customers/by-external-id/archive?external_id="} {
		p = b.send(t, "POST", path, "").problem(t, 422, "invalid")
		require.Equal(t, "query.external_id", p.Errors[0].Location)
	}
	b.send(t, "PUT", "/v1/customers/by-external-id/upsert", `{}`).problem(t, 422, "invalid")
	b.send(t, "GET", "/v1/customers/by-external-id/plan?external_id=globex", "").problem(t, 404, "not_found")
	for _, name := range []string{"a%2Fb", "a%3Fb", "%25", "%2B", "by-id"} {
		require.Equal(t, 201, b.send(t, "PUT", "/v1/customers/"+name+"/upsert", `{}`).status, name)
		require.Equal(t, 200, b.send(t, "GET", "/v1/customers/"+name+"/plan", "").status, name)
	}
}
